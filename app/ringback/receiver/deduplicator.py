"""Handles each message once, even if copies arrive repeatedly or concurrently."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

MessageKey = tuple[str | None, str]
"""Subscription and `webhook-id`: an event has the same `webhook-id` for all its subscriptions."""


class Deduplicator:
    """Remembers the `capacity` messages that were handled or repeated last."""

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._handled: OrderedDict[MessageKey, None] = OrderedDict()
        self._locks: WeakValueDictionary[MessageKey, asyncio.Lock] = WeakValueDictionary()

    async def run_unless_handled(self, key: MessageKey, work: Callable[[], Awaitable[None]]) -> None:
        """Await `work` unless it has succeeded for this key. If it raises, the next copy of the message tries again."""
        lock = self._locks.setdefault(key, asyncio.Lock())  # lives while a task holds or awaits it
        async with lock:
            if key not in self._handled:
                await work()
            self._record_handled(key)

    def _record_handled(self, key: MessageKey) -> None:
        self._handled[key] = None
        self._handled.move_to_end(key)
        if len(self._handled) > self._capacity:
            self._handled.popitem(last=False)
