"""Callbacks for `wait_for`: each goes to one waiter, in the order of arrival.

The callback of a short call may arrive before its waiter, while the start of the call has not returned yet. So callbacks are
kept, and a waiter checks the kept ones first.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from ringback.receiver.envelopes import Callback


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackSelector:
    """Which callbacks a waiter accepts: those whose ids equal all that are given."""

    correlation_id: str | None = None
    client_session_id: str | None = None

    def __post_init__(self) -> None:
        if self.correlation_id is None and self.client_session_id is None:
            raise ValueError("wait_for needs a correlation_id, a client_session_id, or both.")

    def matches(self, callback: Callback) -> bool:
        return (self.correlation_id is None or callback.correlation_id == self.correlation_id) and (
            self.client_session_id is None or callback.client_session_id == self.client_session_id
        )


def is_waitable(callback: Callback) -> bool:
    """Whether a waiter could select it: it has an id that the caller of the call chose."""
    return callback.correlation_id is not None or callback.client_session_id is not None


def _ignore_removal(_: int) -> None: ...


class ArrivedCallbacks:
    """Keeps the newest `capacity` callbacks that no waiter has received, and of them those within `bytes_max`.

    The size of a callback is that of its body; parsed, it takes a small multiple of that.
    `on_removed` is called with the number of each callback that is kept no longer.
    """

    def __init__(self, *, capacity: int, bytes_max: int, on_removed: Callable[[int], None] = _ignore_removal) -> None:
        self._capacity = capacity
        self._bytes_max = bytes_max
        self._on_removed = on_removed
        self._callbacks: OrderedDict[int, tuple[Callback, int]] = OrderedDict()
        """By number, each callback and its size in bytes."""
        self._bytes = 0
        self._waiters: list[tuple[CallbackSelector, asyncio.Event]] = []

    def put_callback(self, callback: Callback, *, number: int, size_bytes: int) -> None:
        """Keep a callback under its number, if it has an id by which a waiter could select it."""
        if not is_waitable(callback):
            return
        self._bytes += size_bytes - self._callbacks.get(number, (callback, 0))[1]
        self._callbacks[number] = callback, size_bytes
        while len(self._callbacks) > self._capacity or self._bytes > self._bytes_max:
            self._remove(next(iter(self._callbacks)))
        for selector, arrival in self._waiters:
            if selector.matches(callback):
                arrival.set()

    async def wait_for_callback(self, selector: CallbackSelector, *, timeout_seconds: float) -> Callback:
        """The oldest kept callback that matches, or the next one; raises TimeoutError.

        A waiter removes its callback without an await, so a cancelled waiter loses none.
        """
        arrival = asyncio.Event()
        self._waiters.append((selector, arrival))
        try:
            async with asyncio.timeout(timeout_seconds):
                while (callback := self._remove_matching(selector)) is None:
                    arrival.clear()
                    await arrival.wait()
        finally:
            self._waiters.remove((selector, arrival))
        return callback

    def _remove_matching(self, selector: CallbackSelector) -> Callback | None:
        for number, (callback, _) in self._callbacks.items():
            if selector.matches(callback):
                self._remove(number)
                return callback
        return None

    def _remove(self, number: int) -> None:
        self._bytes -= self._callbacks.pop(number)[1]
        self._on_removed(number)
