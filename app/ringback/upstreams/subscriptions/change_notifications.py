"""Publishes changes that upstreams report to listeners in this process.

A change only says that something has changed. So equal pending changes are kept once, and a slow listener misses none.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Generator, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Final, TypeVar

from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.domain.upstreams import UpstreamChange

T = TypeVar("T")

QUEUED_RESOURCES_MAX: Final = 4096
"""Different resources of one upstream with a pending change. Only an upstream that reports unwatched resources comes near the
limit; its oldest resource change is then dropped."""
OWNED_RESOURCES_MAX: Final = 256
"""The same for the connection of one principal: the resources that it can watch (`RESOURCE_URIS_MAX`). So a thousand
principals hold no more than 64 such upstreams do, and none drops a change of another one."""


class PendingChanges(MutableMapping[UpstreamChange, T]):
    """Pending changes in order of arrival, each with a value.

    An upstream can send any number of URIs, so resource changes are limited for each upstream and owner of a connection. Its
    lists need no limit: the change of a list is never dropped.
    """

    def __init__(self) -> None:
        self._values: dict[UpstreamChange, T] = {}
        self._resource_changes: dict[tuple[str, Principal], dict[UpstreamChange, None]] = {}
        """The pending resource changes of each upstream and owner."""

    def __setitem__(self, change: UpstreamChange, value: T) -> None:
        if change.uri is not None and change not in self._values:
            resources = self._resource_changes.setdefault((change.upstream, change.owner), {})
            limit = QUEUED_RESOURCES_MAX if change.owner == SHARED_OWNER else OWNED_RESOURCES_MAX
            if len(resources) >= limit:
                oldest = next(iter(resources))
                del resources[oldest], self._values[oldest]
            resources[change] = None
        self._values[change] = value

    def __delitem__(self, change: UpstreamChange) -> None:
        del self._values[change]
        if change.uri is not None:
            resources = self._resource_changes[change.upstream, change.owner]
            del resources[change]
            if not resources:
                del self._resource_changes[change.upstream, change.owner]

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
    def subscribe_changes(
        self, upstream: str | None = None, *, principal: Principal | None, uris: Collection[str] | None = None
    ) -> "Generator[ChangeStream]":
        """The changes of this upstream, or of all upstreams, for this principal, from now on. None: for all principals.

        With `uris`, of resources only the changes of these.
        """
        stream = ChangeStream(upstream, principal, uris)
        self._streams.add(stream)
        try:
            yield stream
        finally:
            self._streams.discard(stream)


class ChangeStream(AsyncIterator[UpstreamChange]):
    """The changes for one listener. The stream has no end."""

    def __init__(self, upstream: str | None, principal: Principal | None, uris: Collection[str] | None = None) -> None:
        self._upstream = upstream
        self._principal = principal
        self._uris = uris
        self._pending = PendingChanges[None]()
        self._changed = asyncio.Event()

    def put_change(self, change: UpstreamChange) -> None:
        if self._upstream not in {None, change.upstream}:
            return
        if self._principal is not None and not change.concerns(self._principal):
            return
        if self._uris is not None and change.uri is not None and change.uri not in self._uris:
            return
        self._pending[change] = None
        self._changed.set()

    async def wait_for_change(self) -> None:
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
