"""Rings within one process: who waits for which topic.

A bell hangs in its topics from `listen` on, so a ring between registering, looking at the store and waiting is not lost:

    with signals.listen(changed(call_id)) as bell:
        while not settled(await look()):       # a ring from here on …
            await bell.wait(5)                 # … is heard here, at once
"""

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager


class LocalBell:
    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, timeout_seconds: float) -> bool:
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


class LocalSignals:
    """Bells by topic. Ringing costs what listens to the topic, not what listens at all."""

    def __init__(self) -> None:
        self._bells: dict[str, set[LocalBell]] = {}

    @contextmanager
    def listen(self, *topics: str) -> Generator[LocalBell]:
        bell = LocalBell()
        for topic in topics:
            self._bells.setdefault(topic, set()).add(bell)
        try:
            yield bell
        finally:
            for topic in set(topics):
                self._leave(topic, bell)

    def ring(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for bell in self._bells.get(topic, ()):
                bell.ring()

    def _leave(self, topic: str, bell: LocalBell) -> None:
        self._bells[topic].discard(bell)
        if not self._bells[topic]:
            del self._bells[topic]
