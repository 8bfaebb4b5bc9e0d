"""Handles each message once, even if copies arrive repeatedly or concurrently, in the memory of one process."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final
from weakref import WeakValueDictionary

FETCHED: Final = "*"
"""In the place of a subscription: the event was read from the log. Such an event and a delivered copy are the same message,
whatever the subscription is."""


class Deduplicator:
    """Remembers the `capacity` messages that were handled or repeated last.

    A message is known by subscription and `webhook-id`: an event has the same `webhook-id` for all its subscriptions.
    """

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._subscriptions: OrderedDict[str, set[str | None]] = OrderedDict()
        """By `webhook-id`, the subscriptions for which the message was handled."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run_unless_handled(
        self, message_id: str, subscription_id: str | None, work: Callable[[], Awaitable[None]]
    ) -> None:
        """Await `work` unless it has succeeded for this message. If it raises, the next copy of the message tries again."""
        lock = self._locks.setdefault(message_id, asyncio.Lock())  # lives while a task holds or awaits it
        async with lock:
            if not self._is_handled(message_id, subscription_id):
                await work()
            self._record_handled(message_id, subscription_id)

    def _is_handled(self, message_id: str, subscription_id: str | None) -> bool:
        handled = self._subscriptions.get(message_id, set())
        return subscription_id in handled or FETCHED in handled or (subscription_id == FETCHED and bool(handled))

    def _record_handled(self, message_id: str, subscription_id: str | None) -> None:
        handled = self._subscriptions.setdefault(message_id, set())
        self._size += subscription_id not in handled
        handled.add(subscription_id)
        self._subscriptions.move_to_end(message_id)
        while self._size > self._capacity:
            self._size -= len(self._subscriptions.popitem(last=False)[1])
