"""An event loop in a thread of its own, which runs coroutines for other threads."""

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator
from concurrent.futures import Future, wait
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

STOP_SECONDS: Final = 5.0
"""How long `close` waits for cancelled coroutines to end. They close connections, which takes no time of its own."""
_CLOSED: Final = "This client is closed."


class Closeable(Protocol):
    def aclose(self) -> Awaitable[None]: ...


class LoopThread:
    """The thread ends with `close`, with this object, or with the process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[Future[Any], asyncio.Task[Any]] = {}
        self._scheduled: dict[Future[Any], Coroutine[Any, Any, Any]] = {}
        """Coroutines that the loop has not started yet."""
        self._thread = threading.Thread(
            target=_run_loop, args=(self._loop, self._scheduled), name="ringback-client", daemon=True
        )
        self._thread.start()
        self._streams: weakref.WeakSet[Closeable] = weakref.WeakSet()
        self._stop = weakref.finalize(self, _stop_loop, self._loop, self._thread, self._tasks, self._streams)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine in the thread, and return its value or raise its error.

        An interrupt (Ctrl-C) cancels it, and is raised once the coroutine has ended: what it used is free again.
        """
        if (refusal := self._refusal()) is not None:
            coroutine.close()
            raise RuntimeError(refusal)
        outcome: Future[T] = Future()
        self._scheduled[outcome] = coroutine
        try:  # an interrupt may be raised anywhere in it, also inside the first call
            self._loop.call_soon_threadsafe(self._start_task, coroutine, outcome)
            return outcome.result()
        except BaseException:
            if not outcome.done():
                self._loop.call_soon_threadsafe(self._cancel_task, outcome)
                wait([outcome], timeout=STOP_SECONDS)
            if outcome.cancelled():
                coroutine.close()
            raise
        finally:
            self._scheduled.pop(outcome, None)

    def iterate(self, source: AsyncGenerator[T]) -> Generator[T]:
        """The values of an asynchronous generator, which is closed with this one."""
        self.add_stream(source)
        try:
            while (value := self.run(next_value(source))) is not None:
                yield value
        finally:
            if self._refusal() is None:
                self.run(source.aclose())

    def add_stream(self, stream: "Closeable") -> None:
        """Close the stream before the thread ends, unless it is closed or dropped by then."""
        self._streams.add(stream)

    @property
    def is_closed(self) -> bool:
        return not self._stop.alive

    def close(self) -> None:
        """Cancel what still runs, and end the thread. Idempotent."""
        self._stop()

    def _start_task(self, coroutine: Coroutine[Any, Any, T], outcome: "Future[T]") -> None:
        self._scheduled.pop(outcome, None)
        if self.is_closed:  # by another thread, since the coroutine was scheduled: the loop would end before the task
            coroutine.close()
            outcome.set_exception(RuntimeError(_CLOSED))
            return
        task = self._loop.create_task(coroutine)
        self._tasks[outcome] = task
        task.add_done_callback(lambda ended: self._finish_task(ended, outcome))

    def _finish_task(self, task: "asyncio.Task[T]", outcome: "Future[T]") -> None:
        del self._tasks[outcome]
        if task.cancelled():
            outcome.set_exception(RuntimeError("This client was closed during the request."))
        elif (error := task.exception()) is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(task.result())

    def _cancel_task(self, outcome: "Future[Any]") -> None:
        """Cancel the task; without one, the interrupt came before the coroutine was scheduled."""
        if outcome in self._tasks:
            self._tasks[outcome].cancel()
        else:
            outcome.cancel()

    def _refusal(self) -> str | None:
        if self.is_closed:
            return _CLOSED
        if not self._thread.is_alive():
            return "This client belongs to the process that created it. Create one in this process, after the fork."
        if threading.current_thread() is self._thread:
            return "A callback of this client cannot call its methods: it runs in the client's own thread."
        return None


async def next_value(source: AsyncGenerator[T]) -> T | None:
    """The generator's next value; None at its end."""
    return await anext(source, None)


def _run_loop(loop: asyncio.AbstractEventLoop, scheduled: "dict[Future[Any], Coroutine[Any, Any, Any]]") -> None:
    """Run the loop until it is stopped. What was scheduled too late for it is refused: its thread would wait for ever."""
    try:
        with asyncio.Runner(
            loop_factory=lambda: loop
        ) as runner:  # its end cancels tasks, and closes generators and the loop
            runner.get_loop().run_forever()
    finally:
        for outcome, coroutine in scheduled.copy().items():
            coroutine.close()
            outcome.set_exception(RuntimeError(_CLOSED))


def _stop_loop(
    loop: asyncio.AbstractEventLoop,
    thread: threading.Thread,
    requests: "dict[Future[Any], asyncio.Task[Any]]",
    streams: "weakref.WeakSet[Closeable]",
) -> None:
    if thread.is_alive():
        asyncio.run_coroutine_threadsafe(_end_tasks(requests, streams), loop)
        thread.join(STOP_SECONDS)


async def _end_tasks(requests: "dict[Future[Any], asyncio.Task[Any]]", streams: "weakref.WeakSet[Closeable]") -> None:
    """Cancel requests, close streams, wait for generators that are being closed, and then stop the loop.

    A stream that is dropped within an iteration is closed by a task of the loop. If the loop closed its generators meanwhile,
    each would be closed twice at once, which asyncio reports as errors.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            for task in list(requests.values()):
                task.cancel()
            for stream in list(streams):
                await stream.aclose()
            while others := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(others)
    finally:
        loop.stop()
