"""Callbacks that somebody waits for, or will: each is handed to one waiter, in the order of arrival.

A callback may arrive before anybody waits for it, because a short call ends before its caller has come back from starting it.
So callbacks are kept, and waiting begins with a look at what is there.
"""

import asyncio
from collections import deque
from weakref import WeakValueDictionary

from ringback.receiver.envelopes import Callback


class CallbackInbox:
    """Keeps the newest `kept_max` callbacks that nobody has taken."""

    def __init__(self, *, capacity: int) -> None:
        self._callbacks: deque[Callback] = deque(maxlen=capacity)
        self._arrivals: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()

    def put_callback(self, callback: Callback) -> None:
        """Keep a callback, if it carries a correlation id: without one nobody could ask for it."""
        if callback.correlation_id is None:
            return
        self._callbacks.append(callback)
        arrival = self._arrivals.get(callback.correlation_id)
        if arrival is not None:
            arrival.set()

    async def wait_for_callback(self, correlation_id: str, *, timeout_seconds: float) -> Callback:
        """The oldest kept callback of this correlation id, or the next one; raises TimeoutError when the time is over.

        Taking is one step without an await, so a waiter that is cancelled or runs out of time takes nothing along.
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
