"""The processes of a simulation: their tasks, their callbacks that are ready, and the end of their coroutines."""

import asyncio
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar
from enum import Enum, auto
from typing import Any, Final, TypeVar

T = TypeVar("T")

UNWIND_STEPS_MAX: Final = 64
"""How often a coroutine that is left is unwound: each `await` in one of its `finally` blocks needs one more step."""


class ProcessState(Enum):
    RUNNING = auto()
    FROZEN = auto()
    DEAD = auto()


class SimulatedProcess:
    """A process on the loop: its callbacks that are ready, and whether they may run."""

    __slots__ = ("abandoned", "callbacks_left", "is_listed", "mark", "name", "number", "on_countdown", "ready", "state")

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.mark = number & 255
        """Stands for the process in the trace."""
        self.name = name
        self.state = ProcessState.RUNNING
        self.ready: deque[ScheduledCallback] = deque()
        self.is_listed = False
        """Whether the scheduler's list contains the process."""
        self.callbacks_left: int | None = None
        """After so many callbacks the scheduler calls `on_countdown`; None: never."""
        self.on_countdown: Callable[[], None] | None = None
        self.abandoned: list[SimulatedTask[Any]] = []
        """The tasks of a killed process. They are kept, so that nothing of them is finalized during the run."""


CURRENT_PROCESS: Final[ContextVar[SimulatedProcess]] = ContextVar("simulated_process")
"""To which process a callback or a task belongs; tasks inherit it."""


class ScheduledCallback:
    """Does what `asyncio.Handle` and `asyncio.TimerHandle` do."""

    __slots__ = ("_when", "args", "callback", "context", "is_cancelled", "process")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
        process: SimulatedProcess,
        when: float,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.process = process
        self.is_cancelled = False
        self._when = when

    def cancel(self) -> None:
        self.is_cancelled = True
        self.callback, self.args = _do_nothing, ()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self._when


def _do_nothing() -> None:
    """The callback of a cancelled one, which no longer refers to its arguments."""


class SimulatedTask(asyncio.Task[T]):
    """A task whose hash is its number: sets of tasks are iterated in the same order in each run of a seed."""

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        *,
        loop: AbstractEventLoop,
        name: str | None,
        context: Context,
        number: int,
    ) -> None:
        self.number = number
        self.context = context
        self.process = context[CURRENT_PROCESS]
        super().__init__(coroutine, loop=loop, name=name or f"task-{number}", context=context)

    def __hash__(self) -> int:
        return self.number


class ProcessEnded(BaseException):
    """Unwinds the coroutines that are left at the end of a simulation.

    `GeneratorExit` does not: a `finally` that awaits would turn it into an ordinary error, which others handle.
    """


def unwind_task(task: SimulatedTask[Any]) -> None:
    """Run the `finally` blocks of a coroutine that is left."""
    coroutine = task.get_coro()
    if not isinstance(coroutine, Coroutine):
        return
    with suppress(BaseException):
        for _ in range(UNWIND_STEPS_MAX):
            coroutine.throw(ProcessEnded())  # returns if a `finally` awaits, and raises at the end
