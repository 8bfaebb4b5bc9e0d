"""Each message is handled once, however often and however concurrently it arrives."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

Key = tuple[str | None, str]
"""Subscription and `webhook-id`: one event has the same `webhook-id` for every subscription that hears it."""


class Once:
    """Remembers the `remembered_max` messages that were handled or repeated last."""

    def __init__(self, *, remembered_max: int) -> None:
        self._remembered_max = remembered_max
        self._handled: OrderedDict[Key, None] = OrderedDict()
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def run(self, key: Key, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work unless it was done. What raises is not done: the next attempt, waiting or yet to come, tries again."""
        lock = self._locks.setdefault(key, asyncio.Lock())  # lives as long as somebody holds or awaits it
        async with lock:
            if key not in self._handled:
                await work()
            self._remember(key)

    def _remember(self, key: Key) -> None:
        self._handled[key] = None
        self._handled.move_to_end(key)
        if len(self._handled) > self._remembered_max:
            self._handled.popitem(last=False)
