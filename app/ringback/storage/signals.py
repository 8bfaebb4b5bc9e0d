"""Notifications by topic, within one process.

A waiter receives notifications of its topics from `listen` on, so one that comes between reading the store and waiting is kept:

    with signals.listen(changed(call_id)) as waiter:
        while not is_final(await read_call()):    # a notification from here on …
            await waiter.wait(5)                  # … ends this wait at once
"""

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager


class LocalWaiter:
    def __init__(self) -> None:
        self._notified = asyncio.Event()

    def notify(self) -> None:
        self._notified.set()

    async def wait(self, timeout_seconds: float) -> bool:
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._notified.wait()
        except TimeoutError:
            return False
        self._notified.clear()
        return True


class LocalSignals:
    """Waiters by topic. A notification costs as much as its topic has waiters, however many there are in all."""

    def __init__(self) -> None:
        self._waiters_by_topic: dict[str, set[LocalWaiter]] = {}

    @contextmanager
    def listen(self, *topics: str) -> Generator[LocalWaiter]:
        waiter = LocalWaiter()
        for topic in topics:
            self._waiters_by_topic.setdefault(topic, set()).add(waiter)
        try:
            yield waiter
        finally:
            for topic in set(topics):
                self._unsubscribe(topic, waiter)

    def notify(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for waiter in self._waiters_by_topic.get(topic, ()):
                waiter.notify()

    def _unsubscribe(self, topic: str, waiter: LocalWaiter) -> None:
        self._waiters_by_topic[topic].discard(waiter)
        if not self._waiters_by_topic[topic]:
            del self._waiters_by_topic[topic]
