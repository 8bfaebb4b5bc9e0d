"""A deterministic event loop for several simulated processes: virtual time, a seeded scheduler, nothing real.

    process A  ▢ ▢ ▢ ─┐
    process B  ▢ ─────┼─▶ the scheduler draws a process, and runs the first callback of its queue
    process C  ▢ ▢ ───┘
    all queues are empty ──▶ the clock jumps to the next timer

Each process keeps what asyncio guarantees: its callbacks run in the order in which they were scheduled. Everything between
processes is drawn. A context variable says to which process a callback belongs, and tasks inherit it, so a process consists of
everything that its first task has started.

A killed process is never scheduled again; a frozen one is scheduled again after its thaw. Nothing of a killed process runs, so
no `finally` of it can write.
"""

import asyncio
import hashlib
from asyncio import events
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from heapq import heappop, heappush
from random import Random
from typing import Any, Final, NoReturn, TypeVar

from scripts.simulate_runs.processes import (
    CURRENT_PROCESS,
    ProcessState,
    ScheduledCallback,
    SimulatedProcess,
    SimulatedTask,
    unwind_task,
)

T = TypeVar("T")

CALLBACKS_AT_ONCE_MAX: Final = 200_000
"""Callbacks that may run while the clock stands still. A plan of ten calls runs some hundreds; more is an endless loop."""
_RUNNING: Final = ProcessState.RUNNING
_DEAD: Final = ProcessState.DEAD
"""Read at every callback: the member of an enumeration takes two look-ups."""
WORLD_NAME: Final = "world"


class StuckSimulation(Exception):
    """Callbacks run for ever while the clock stands still, or nothing is left to run although the main task has not ended."""


class SimulationLoop(asyncio.BaseEventLoop):
    """The loop of one simulation. `chance` draws the order of processes."""

    def __init__(self, chance: Random) -> None:
        self._has_begun = self._has_ended = False
        super().__init__()
        self.set_debug(False)
        self._draw = chance.random
        self._now = 0.0
        self._timers: list[tuple[float, int, ScheduledCallback]] = []
        self._timer_count = 0
        self._task_count = 0
        self._runnable: list[SimulatedProcess] = []
        self._processes: list[SimulatedProcess] = []
        self._trace = bytearray()
        self.problems: list[str] = []
        """Errors that callbacks and forgotten tasks raised: each is a bug."""

    # -- processes --

    def create_process(self, name: str) -> tuple[SimulatedProcess, Context]:
        """A new process, and the context in which its first task or callback runs."""
        process = SimulatedProcess(len(self._processes), name)
        self._processes.append(process)
        context = copy_context()
        context.run(CURRENT_PROCESS.set, process)
        return process, context

    def kill_process(self, process: SimulatedProcess) -> None:
        """Nothing of the process runs from now on."""
        if process.state is ProcessState.DEAD:
            return
        process.abandoned = [task for task in self.unfinished_tasks() if task.process is process]
        process.state = ProcessState.DEAD
        process.ready.clear()
        self._unlist(process)

    def freeze_process(self, process: SimulatedProcess) -> None:
        if process.state is ProcessState.RUNNING:
            process.state = ProcessState.FROZEN
            self._unlist(process)

    def thaw_process(self, process: SimulatedProcess) -> None:
        if process.state is ProcessState.FROZEN:
            process.state = ProcessState.RUNNING
            self._list(process)

    def unfinished_tasks(self) -> "list[SimulatedTask[Any]]":
        """All tasks that have not ended, in the order of their creation."""
        found: list[SimulatedTask[Any]] = [task for task in asyncio.all_tasks(self) if isinstance(task, SimulatedTask)]
        return sorted(found, key=_task_number)

    def _list(self, process: SimulatedProcess) -> None:
        if process.ready and not process.is_listed:
            process.is_listed = True
            self._runnable.append(process)

    def _unlist(self, process: SimulatedProcess) -> None:
        if process.is_listed:
            process.is_listed = False
            self._runnable.remove(process)

    # -- running --

    def run_simulation(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` in a process of its own until it ends, then close everything that is left."""
        process, context = self.create_process("simulation")
        self._has_begun = True
        events._set_running_loop(self)  # noqa: SLF001 - what run_forever does; asyncio has no public function for it
        try:
            task = self.create_task(main, context=context)
            self._run_until_done(task, process)
            return task.result()
        finally:
            self._close_everything()
            events._set_running_loop(None)  # noqa: SLF001

    def _run_until_done(self, task: "asyncio.Task[Any]", main: SimulatedProcess) -> None:
        runnable, draw, note_process = self._runnable, self._draw, self._trace.append
        callbacks_at_once = 0
        while True:
            if not runnable:
                self._advance_clock()
                callbacks_at_once = 0
                continue
            process = runnable[int(draw() * len(runnable))] if len(runnable) > 1 else runnable[0]
            ready = process.ready
            callback = ready.popleft()
            if not ready:
                process.is_listed = False
                runnable.remove(process)
            note_process(process.mark)
            callbacks_at_once += 1
            if callbacks_at_once > CALLBACKS_AT_ONCE_MAX:
                raise StuckSimulation(f"{process.name} runs without an end at {self._now:.3f} s.")
            try:
                callback.context.run(callback.callback, *callback.args)  # of a cancelled one: nothing
            except Exception as error:  # noqa: BLE001 - boundary: as BaseEventLoop does, a callback's error ends nothing else
                self.problems.append(f"{process.name}: a callback raised {error!r}")
            if process.callbacks_left is not None:
                self._count_down(process)
            if process is main and task.done():  # the task ends in a callback of its own process
                return

    def _count_down(self, process: SimulatedProcess) -> None:
        process.callbacks_left = (process.callbacks_left or 0) - 1
        if process.callbacks_left <= 0 and process.on_countdown is not None:
            process.callbacks_left, on_countdown = None, process.on_countdown
            on_countdown()

    def _advance_clock(self) -> None:
        """Move the clock to the next timer, and make all callbacks ready that are due then."""
        timers = self._timers
        while timers:
            when, _, callback = heappop(timers)
            if self._make_ready(callback):
                break
        else:
            raise StuckSimulation(f"Nothing is left to run at {self._now:.3f} s.")
        self._now = max(self._now, when)
        while timers and timers[0][0] <= self._now:
            self._make_ready(heappop(timers)[2])

    def _make_ready(self, callback: ScheduledCallback) -> bool:
        """Append the callback of a timer to its process. False if it is cancelled, or its process is dead."""
        process = callback.process
        if callback.is_cancelled or process.state is _DEAD:
            return False
        process.ready.append(callback)
        if not process.is_listed and process.state is _RUNNING:
            process.is_listed = True
            self._runnable.append(process)
        return True

    def _close_everything(self) -> None:
        """Close all coroutines that have not ended. Whatever their `finally` blocks schedule is dropped."""
        self._has_ended = True
        left = [task for process in self._processes for task in process.abandoned]
        left += [task for task in self.unfinished_tasks() if task not in left]
        for process in self._processes:
            process.state = ProcessState.DEAD
        closed: set[SimulatedTask[Any]] = set()
        while left:
            for task in left:
                task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001 - its end is meant
                task.context.run(unwind_task, task)
            closed.update(left)
            left = [task for task in self.unfinished_tasks() if task not in closed]  # a `finally` has begun them
        self._timers.clear()
        for process in self._processes:
            process.abandoned = []

    def trace_hash(self) -> str:
        """A digest of the order in which processes ran. Two runs of a seed have the same."""
        return hashlib.sha256(self._trace).hexdigest()[:16]

    @property
    def has_ended(self) -> bool:
        """Whether nothing of the simulation runs any more. What is unwound then is no fact."""
        return self._has_ended

    @property
    def callback_count(self) -> int:
        return len(self._trace)

    # -- what asyncio calls --

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override] # a handle of our own, which asyncio only cancels
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> ScheduledCallback:
        if context is None:
            context = copy_context()
        process = context[CURRENT_PROCESS]
        scheduled = ScheduledCallback(callback, args, context, process, self._now)
        if not self._has_ended and process.state is not _DEAD:
            process.ready.append(scheduled)
            if not process.is_listed and process.state is _RUNNING:
                process.is_listed = True
                self._runnable.append(process)
        return scheduled

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> ScheduledCallback:
        if context is None:
            context = copy_context()
        return self.schedule(self._now + delay, callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> ScheduledCallback:
        if context is None:
            context = copy_context()
        return self.schedule(when, callback, args, context)

    def schedule(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context
    ) -> ScheduledCallback:
        """`call_at` for those that have the arguments as a tuple."""
        scheduled = ScheduledCallback(callback, args, context, context[CURRENT_PROCESS], when)
        if not self._has_ended and scheduled.process.state is not _DEAD:
            self._timer_count += 1
            heappush(self._timers, (when, self._timer_count, scheduled))
        return scheduled

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> "asyncio.Task[T]":
        self._task_count += 1
        return SimulatedTask(coro, loop=self, name=name, context=context or copy_context(), number=self._task_count)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._has_ended:
            self.problems.append(f"{context.get('message')}: {context.get('exception')!r}")

    def is_running(self) -> bool:
        return self._has_begun and not self._has_ended

    def is_closed(self) -> bool:
        return self._has_ended

    # -- what a simulation must not do --

    def call_soon_threadsafe(self, *_args: Any, **_named: Any) -> NoReturn:  # type: ignore[override]
        _refuse("threads")

    def run_in_executor(self, *_args: Any, **_named: Any) -> NoReturn:  # type: ignore[override]
        _refuse("threads")

    async def getaddrinfo(self, *_args: Any, **_named: Any) -> NoReturn:  # type: ignore[override]
        _refuse("name servers")

    async def create_connection(self, *_args: Any, **_named: Any) -> NoReturn:  # type: ignore[override]
        _refuse("sockets")

    async def create_server(self, *_args: Any, **_named: Any) -> NoReturn:  # type: ignore[override]
        _refuse("sockets")

    async def subprocess_exec(self, *_args: Any, **_named: Any) -> NoReturn:  # type: ignore[override]
        _refuse("child processes")

    async def subprocess_shell(self, *_args: Any, **_named: Any) -> NoReturn:  # type: ignore[override]
        _refuse("child processes")


def _task_number(task: SimulatedTask[Any]) -> int:
    return task.number


def _refuse(what: str) -> NoReturn:
    raise RuntimeError(f"A simulation has no {what}. Hand in a simulated seam instead.")
