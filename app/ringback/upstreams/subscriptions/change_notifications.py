"""Publishes changes that upstreams report to listeners in this process.

A change only says that something has changed. So equal pending changes are kept once, and a slow listener misses none.
"""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Final, TypeVar

from ringback.domain.upstreams import UpstreamChange

T = TypeVar("T")

QUEUED_RESOURCES_MAX: Final = 4096
"""Different resources of one upstream with a pending change. Only an upstream that reports unwatched resources comes near the
limit; its oldest resource change is then dropped."""


class PendingChanges(MutableMapping[UpstreamChange, T]):
    """Pending changes in order of arrival, each with a value.

    An upstream can send any number of URIs, so resource changes are limited for each upstream. Its four lists need no limit:
    the change of a list is never dropped.
    """

    def __init__(self) -> None:
        self._values: dict[UpstreamChange, T] = {}
        self._resource_changes: dict[str, dict[UpstreamChange, None]] = {}
        """The pending resource changes of each upstream."""

    def __setitem__(self, change: UpstreamChange, value: T) -> None:
        if change.uri is not None and change not in self._values:
            resources = self._resource_changes.setdefault(change.upstream, {})
            if len(resources) >= QUEUED_RESOURCES_MAX:
                oldest = next(iter(resources))
                del resources[oldest], self._values[oldest]
            resources[change] = None
        self._values[change] = value

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
            stream.put_change(change)

    @contextmanager
    def subscribe_changes(self, upstream: str | None = None) -> "Generator[ChangeStream]":
        """The changes of this upstream, or of all upstreams, from now on."""
        stream = ChangeStream(upstream)
        self._streams.add(stream)
        try:
            yield stream
        finally:
            self._streams.discard(stream)


class ChangeStream(AsyncIterator[UpstreamChange]):
    """The changes for one listener. The stream has no end."""

    def __init__(self, upstream: str | None) -> None:
        self._upstream = upstream
        self._pending = PendingChanges[None]()
        self._changed = asyncio.Event()

    def put_change(self, change: UpstreamChange) -> None:
        if self._upstream not in {None, change.upstream}:
            return
        self._pending[change] = None
        self._changed.set()

    async def wait_for_change(self) -> None:
        """Wait until a change is pending."""
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
