"""Primitives for waiting within one process: a waiter, a flag with callbacks, and waits that leave no task behind."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import copy_context
from types import TracebackType
from typing import Any, Self, TypeVar

from ringback.asyncio_tasks import end_tasks
from ringback.domain.signals import Waiter

T = TypeVar("T")


class LocalWaiter:
    """Wakes one task within this process. Implements `domain.signals.Waiter`.

    A notification that arrives while the task works is kept: the next `wait` returns at once.
    """

    __slots__ = ("__weakref__", "_is_notified", "_waiting")

    def __init__(self) -> None:
        self._is_notified = False
        self._waiting: asyncio.Future[None] | None = None

    def notify(self) -> None:
        self._is_notified = True
        if self._waiting is not None:
            _end_wait(self._waiting)

    async def wait(self, timeout_seconds: float | None = None) -> bool:
        """True after a notification, False when the time is over."""
        if not self._is_notified:
            await self._wait_for_notification(timeout_seconds)
        is_notified, self._is_notified = self._is_notified, False
        return is_notified

    async def _wait_for_notification(self, timeout_seconds: float | None) -> None:
        """A timer ends the wait: `asyncio.timeout` would cancel the task, which takes four times as long."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting = loop.create_future()
        timer = None if timeout_seconds is None else loop.call_later(timeout_seconds, _end_wait, waiting)
        try:
            await waiting
        finally:
            self._waiting = None
            if timer is not None:
                timer.cancel()


def _end_wait(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


@asynccontextmanager
async def notify_when_set(waiter: Waiter, event: asyncio.Event) -> AsyncGenerator[None]:
    """Within this block, notify the waiter once the event is set: one task for all waits, not one for each."""

    async def notify() -> None:
        await event.wait()
        waiter.notify()

    notifying = asyncio.create_task(notify())
    try:
        yield
    finally:
        await end_tasks([notifying])


class ObservableFlag:
    """A boolean with callbacks. Thousands of executions watch one flag; a callback costs less than a waiting task."""

    __slots__ = ("_callbacks", "_is_set")

    def __init__(self, *, is_set: bool = False) -> None:
        self._is_set = is_set
        self._callbacks: dict[Callable[[], None], None] = {}

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            for callback in tuple(self._callbacks):
                callback()

    def clear(self) -> None:
        self._is_set = False

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Run the callback each time the flag changes from cleared to set, after those added earlier. It must not raise."""
        self._callbacks[callback] = None

    def remove_callback(self, callback: Callable[[], None]) -> None:
        self._callbacks.pop(callback, None)


async def wait_first(*awaitables: Awaitable[Any], timeout_seconds: float | None = None) -> None:
    """Return when one of them is done or the time is over. The others are cancelled and have ended by then.

    Pass a task that must go on inside `asyncio.shield`. Results and exceptions are ignored.
    """
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(tasks, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(tasks)


async def run_with_helper(work: Coroutine[Any, Any, T], helper: Coroutine[Any, Any, None]) -> T:
    """Return the result of `work` while `helper` runs beside it. If the helper raises, cancel the work and raise that."""
    tasks = asyncio.create_task(work), asyncio.create_task(helper)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            tasks[1].result()
        return await tasks[0]
    finally:
        await end_tasks(tasks)


class LateHelper:
    """Runs beside the block that it is entered for, from the first `start` on: a task costs more than most blocks take.

    It runs in the context of the block. The task that calls `start` may belong to something else, with its own log facts.
    """

    __slots__ = ("_context", "_run", "_task")

    def __init__(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._run: Callable[[], Coroutine[Any, Any, None]] | None = run
        """None after the block."""
        self._context = copy_context()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the helper, unless it was started before. Only within the block."""
        if self._task is None and self._run is not None:
            self._task = asyncio.create_task(self._run(), context=self._context)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the helper. Raises what it raised, unless the block raises.

        Task and function are not kept, because what they use may refer to this helper.
        """
        task, self._task, self._run = self._task, None, None
        if task is None:
            return
        await end_tasks([task])
        if error is None and not task.cancelled():
            task.result()
