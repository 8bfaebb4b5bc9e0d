"""What upstreams tell unasked, handed on to whoever listens in this process.

A change says "look again" and nothing more. So the same one twice is kept once while it waits, and nobody who is slow misses
that there was one.
"""

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from typing import Final

from ringback.domain.upstreams import Change

WAITING_MAX: Final = 4096
"""Different changes that wait for one listener. Only an upstream that tells of resources that nobody watches comes near it;
then the oldest goes."""


class Changes:
    def __init__(self) -> None:
        self._streams: set[ChangeStream] = set()

    def publish(self, change: Change) -> None:
        for stream in self._streams:
            stream.take(change)

    @contextmanager
    def listen(self, upstream: str | None = None) -> "Generator[ChangeStream]":
        """The changes of this upstream, or of all, from entering on."""
        stream = ChangeStream(upstream)
        self._streams.add(stream)
        try:
            yield stream
        finally:
            self._streams.discard(stream)


class ChangeStream(AsyncIterator[Change]):
    """For one reader. It never ends by itself."""

    def __init__(self, upstream: str | None) -> None:
        self._upstream = upstream
        self._waiting: dict[Change, None] = {}
        self._news = asyncio.Event()

    def take(self, change: Change) -> None:
        if self._upstream not in {None, change.upstream}:
            return
        if len(self._waiting) >= WAITING_MAX and change not in self._waiting:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[change] = None
        self._news.set()

    async def wait(self) -> None:
        """Until there is something to take."""
        while not self._waiting:
            self._news.clear()
            await self._news.wait()

    def take_all(self) -> list[Change]:
        changes = list(self._waiting)
        self._waiting.clear()
        return changes

    async def __anext__(self) -> Change:
        await self.wait()
        change = next(iter(self._waiting))
        del self._waiting[change]
        return change
