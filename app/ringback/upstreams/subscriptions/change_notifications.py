"""What upstreams tell unasked, handed on to whoever listens in this process.

A change says "look again" and nothing more. So the same one twice is kept once while it waits, and nobody who is slow misses
that there was one.
"""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Final, TypeVar

from ringback.domain.upstreams import UpstreamChange

T = TypeVar("T")

QUEUED_RESOURCES_MAX: Final = 4096
"""Different resources of one upstream of which a change waits. Only one that tells of resources that nobody watches comes near
it; then the oldest of its own goes."""


class PendingChanges(MutableMapping[UpstreamChange, T]):
    """Changes that wait, in their order, with whatever is noted of each.

    An upstream makes up as many URIs as it likes, so those are bounded, for each upstream by itself. Its lists are four: a
    change of one is never given up for a resource's.
    """

    def __init__(self) -> None:
        self._values: dict[UpstreamChange, T] = {}
        self._resource_changes: dict[str, dict[UpstreamChange, None]] = {}
        """Of each upstream, those of the above that name a resource."""

    def __setitem__(self, change: UpstreamChange, noted: T) -> None:
        if change.uri is not None and change not in self._values:
            resources = self._resource_changes.setdefault(change.upstream, {})
            if len(resources) >= QUEUED_RESOURCES_MAX:
                oldest = next(iter(resources))
                del resources[oldest], self._values[oldest]
            resources[change] = None
        self._values[change] = noted

    def __delitem__(self, change: UpstreamChange) -> None:
        del self._values[change]
        if change.uri is not None:
            resources = self._resource_changes[change.upstream]
            del resources[change]
            if not resources:
                del self._resource_changes[change.upstream]

    def __getitem__(self, change: UpstreamChange) -> T:
        return self._values[change]

    def __iter__(self) -> Iterator[UpstreamChange]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class ChangeNotifications:
    def __init__(self) -> None:
        self._streams: set[ChangeStream] = set()

    def publish_change(self, change: UpstreamChange) -> None:
        for stream in self._streams:
            stream.put(change)

    @contextmanager
    def subscribe_changes(self, upstream: str | None = None) -> "Generator[ChangeStream]":
        """The changes of this upstream, or of all, from entering on."""
        stream = ChangeStream(upstream)
        self._streams.add(stream)
        try:
            yield stream
        finally:
            self._streams.discard(stream)


class ChangeStream(AsyncIterator[UpstreamChange]):
    """For one reader. It never ends by itself."""

    def __init__(self, upstream: str | None) -> None:
        self._upstream = upstream
        self._pending = PendingChanges[None]()
        self._changed = asyncio.Event()

    def put(self, change: UpstreamChange) -> None:
        if self._upstream not in {None, change.upstream}:
            return
        self._pending[change] = None
        self._changed.set()

    async def wait_for_change(self) -> None:
        """Until there is something to take."""
        while not self._pending:
            self._changed.clear()
            await self._changed.wait()

    def drain(self) -> list[UpstreamChange]:
        changes, self._pending = list(self._pending), PendingChanges[None]()
        return changes

    async def __anext__(self) -> UpstreamChange:
        await self.wait_for_change()
        change = next(iter(self._pending))
        del self._pending[change]
        return change
