"""Waiting for whichever comes first, without leaving anything behind."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class ObservableFlag:
    """A fact, and whom to tell once it is set: for thousands to whom it matters, none of whom waits for it alone."""

    __slots__ = ("_callbacks", "_is_set")

    def __init__(self, *, is_set: bool = False) -> None:
        self._is_set = is_set
        self._callbacks: set[Callable[[], None]] = set()

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
        """Call `tell` whenever this is set from now on; it must not raise."""
        self._callbacks.add(callback)

    def remove_callback(self, callback: Callable[[], None]) -> None:
        self._callbacks.discard(callback)


async def wait_first(*awaitables: Awaitable[Any], timeout_seconds: float | None = None) -> None:
    """Return when one of them is done or the time is over; the others are cancelled and have ended by then.

    A task among them that must live on is passed inside `asyncio.shield`. What they return or raise is not looked at.
    """
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(tasks, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in tasks:
            wait.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_with_helper(work: Coroutine[Any, Any, T], helper: Coroutine[Any, Any, None]) -> T:
    """What `work` returns, while `helper` runs beside it; when the helper fails, that is raised and the work is cancelled."""
    tasks = asyncio.create_task(work), asyncio.create_task(helper)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            tasks[1].result()
        return await tasks[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
