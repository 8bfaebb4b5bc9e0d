"""Rings within one process: who waits for which topic.

A bell hangs in its topics from `listen` on, so a ring between registering, looking at the store and waiting is not lost:

    with signals.listen(changed(call_id)) as bell:
        while not settled(await look()):       # a ring from here on …
            await bell.wait(5)                 # … is heard here, at once
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
    """Bells by topic. Ringing costs what listens to the topic, not what listens at all."""

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
            for bell in self._waiters_by_topic.get(topic, ()):
                bell.notify()

    def _unsubscribe(self, topic: str, waiter: LocalWaiter) -> None:
        self._waiters_by_topic[topic].discard(waiter)
        if not self._waiters_by_topic[topic]:
            del self._waiters_by_topic[topic]
