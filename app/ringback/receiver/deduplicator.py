"""Each message is handled once, however often and however concurrently it arrives."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

MessageKey = tuple[str | None, str]
"""Subscription and `webhook-id`: one event has the same `webhook-id` for every subscription that hears it."""


class Deduplicator:
    """Remembers the `remembered_max` messages that were handled or repeated last."""

    def __init__(self, *, capacity: int) -> None:
        self._remembered_max = capacity
        self._handled: OrderedDict[MessageKey, None] = OrderedDict()
        self._locks: WeakValueDictionary[MessageKey, asyncio.Lock] = WeakValueDictionary()

    async def run_unless_handled(self, key: MessageKey, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work unless it was done. What raises is not done: the next attempt, waiting or yet to come, tries again."""
        lock = self._locks.setdefault(key, asyncio.Lock())  # lives as long as somebody holds or awaits it
        async with lock:
            if key not in self._handled:
                await work()
            self._record_handled(key)

    def _record_handled(self, key: MessageKey) -> None:
        self._handled[key] = None
        self._handled.move_to_end(key)
        if len(self._handled) > self._remembered_max:
            self._handled.popitem(last=False)
