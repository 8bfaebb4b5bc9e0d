"""What upstreams tell unasked, handed on to whoever listens in this process.

A change says "look again" and nothing more. So the same one twice is kept once while it waits, and nobody who is slow misses
that there was one.
"""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Final, TypeVar

from ringback.domain.upstreams import Change

T = TypeVar("T")

WAITING_MAX: Final = 4096
"""Different resources of one upstream of which a change waits. Only one that tells of resources that nobody watches comes near
it; then the oldest of its own goes."""


class Backlog(MutableMapping[Change, T]):
    """Changes that wait, in their order, with whatever is noted of each.

    An upstream makes up as many URIs as it likes, so those are bounded, for each upstream by itself. Its lists are four: a
    change of one is never given up for a resource's.
    """

    def __init__(self) -> None:
        self._noted: dict[Change, T] = {}
        self._resources: dict[str, dict[Change, None]] = {}
        """Of each upstream, those of the above that name a resource."""

    def __setitem__(self, change: Change, noted: T) -> None:
        if change.uri is not None and change not in self._noted:
            resources = self._resources.setdefault(change.upstream, {})
            if len(resources) >= WAITING_MAX:
                oldest = next(iter(resources))
                del resources[oldest], self._noted[oldest]
            resources[change] = None
        self._noted[change] = noted

    def __delitem__(self, change: Change) -> None:
        del self._noted[change]
        if change.uri is not None:
            resources = self._resources[change.upstream]
            del resources[change]
            if not resources:
                del self._resources[change.upstream]

    def __getitem__(self, change: Change) -> T:
        return self._noted[change]

    def __iter__(self) -> Iterator[Change]:
        return iter(self._noted)

    def __len__(self) -> int:
        return len(self._noted)


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
        self._waiting = Backlog[None]()
        self._news = asyncio.Event()

    def take(self, change: Change) -> None:
        if self._upstream not in {None, change.upstream}:
            return
        self._waiting[change] = None
        self._news.set()

    async def wait(self) -> None:
        """Until there is something to take."""
        while not self._waiting:
            self._news.clear()
            await self._news.wait()

    def take_all(self) -> list[Change]:
        changes, self._waiting = list(self._waiting), Backlog[None]()
        return changes

    async def __anext__(self) -> Change:
        await self.wait()
        change = next(iter(self._waiting))
        del self._waiting[change]
        return change
