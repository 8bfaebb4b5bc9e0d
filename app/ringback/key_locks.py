"""One lock for each key: work with the same key runs one after the other."""

import asyncio
import threading
from collections import deque
from contextlib import suppress
from weakref import WeakValueDictionary


class KeyLocks:
    """Its locks may be used in several threads: a synchronous web server runs each callback's handler in a loop of its own."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, KeyLock] = WeakValueDictionary()

    def hold(self, key: str) -> "KeyLock":
        """The lock of the key, for `async with`. It is kept while a task holds or awaits it, so old keys take no room."""
        with self._guard:
            return self._locks.setdefault(key, KeyLock())


class KeyLock:
    """A fair lock, whose release also wakes a task of another event loop; that of asyncio does not."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._is_held = False
        self._waiters: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()

    async def acquire(self) -> None:
        with self._guard:
            if not self._is_held:
                self._is_held = True
                return
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            self._give_up(waiter)
            raise

    def release(self) -> None:
        with self._guard:
            self._pass_on()

    def _give_up(self, waiter: asyncio.Future[None]) -> None:
        with self._guard:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            else:  # the lock was passed on to it already
                self._pass_on()

    def _pass_on(self) -> None:
        """Pass the lock on to the first waiter whose event loop is not closed."""
        self._is_held = False
        while self._waiters and not self._is_held:
            self._is_held = _wake(self._waiters.popleft())


def _wake(waiter: asyncio.Future[None]) -> bool:
    """Whether the waiter wakes, or gives up. False if its event loop is closed.

    No loop runs if the holder was dropped with its loop, and the lock is released as its coroutine is deleted.
    """
    with suppress(RuntimeError):
        if waiter.get_loop() is asyncio.get_running_loop():
            _set_result(waiter)
            return True
    try:
        waiter.get_loop().call_soon_threadsafe(_set_result, waiter)
    except RuntimeError:
        return False
    return True


def _set_result(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
