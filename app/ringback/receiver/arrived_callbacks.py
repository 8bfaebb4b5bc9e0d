"""Callbacks for waiters: each callback goes to one waiter, in the order of arrival.

The callback of a short call may arrive before its waiter, while the start of the call has not returned yet. So callbacks are
kept, and a waiter checks the kept ones first.
"""

import asyncio
from collections import deque
from weakref import WeakValueDictionary

from ringback.receiver.envelopes import Callback


class CallbackInbox:
    """Keeps the newest `capacity` callbacks that no waiter has taken."""

    def __init__(self, *, capacity: int) -> None:
        self._callbacks: deque[Callback] = deque(maxlen=capacity)
        self._arrivals: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()

    def put_callback(self, callback: Callback) -> None:
        """Keep a callback if it has a correlation id; waiters select by it."""
        if callback.correlation_id is None:
            return
        self._callbacks.append(callback)
        arrival = self._arrivals.get(callback.correlation_id)
        if arrival is not None:
            arrival.set()

    async def wait_for_callback(self, correlation_id: str, *, timeout_seconds: float) -> Callback:
        """The oldest kept callback with this correlation id, or the next one; raises TimeoutError.

        A waiter removes its callback without an await, so a cancelled waiter loses none.
        """
        arrival = self._arrivals.setdefault(correlation_id, asyncio.Event())
        async with asyncio.timeout(timeout_seconds):
            while (callback := self._remove_matching(correlation_id)) is None:
                arrival.clear()
                await arrival.wait()
        return callback

    def _remove_matching(self, correlation_id: str) -> Callback | None:
        for callback in self._callbacks:
            if callback.correlation_id == correlation_id:
                self._callbacks.remove(callback)
                return callback
        return None
