"""What each upstream told of itself and its lists as they came last: in memory, and in the store for when it is away.

    connection ──▶ Shelf.introduce, Shelf.put ──▶ memory ──▶ store, if it differs
               ──▶ Shelf.tell                  ──▶ a list is out of date; whoever listens hears it (changes)
    start      ──▶ Shelves.load                ──▶ memory: known, and older than anything that is asked for
    removed    ──▶ Shelves.drop, keep_only     ──▶ neither memory nor the store has it any more

A list that differs from what was known before counts as a change that was told: the upstream may have changed while it could
not be heard.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.catalog import PROFILE, CatalogPart
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.upstreams import Change, Listing, Profile, ToolInfo
from ringback.runner.changes import Changes, ChangeStream
from ringback.runner.listing import ENTRIES_AT_ONCE, tools_of

log = logging.getLogger(__name__)

Keep = Callable[[str, str, Any], Awaitable[bool]]
"""Puts a part of an upstream's catalog into the store; False when that could not be done now."""

PROFILE_BYTES_MAX: Final = 1024 * 1024
"""Most of it are instructions for a model, which would read no book of this size."""

TOLD_WITH: Final = {Listing.RESOURCES: (Listing.RESOURCES, Listing.RESOURCE_TEMPLATES)}
"""One notification tells of both lists."""


class Shelf:
    """Of one upstream; it outlives its connections."""

    def __init__(self, upstream: str, *, clock: Clock, changes: Changes, keep: Keep) -> None:
        self._upstream = upstream
        self._clock = clock
        self._changes = changes
        self._keep = keep
        self._lists: dict[Listing, Sequence[Mapping[str, Any]]] = {}
        self._asked_at: dict[Listing, float] = {}
        self._told: set[Listing] = set()
        self._current: set[Listing] = set()
        self._not_kept: set[str] = set()
        self.profile: Profile | None = None
        self.tools: Mapping[str, ToolInfo] | None = None
        """As last listed; None when they never were."""

    def entries(self, listing: Listing) -> Sequence[Mapping[str, Any]] | None:
        return self._lists.get(listing)

    def age_seconds(self, listing: Listing) -> float | None:
        """Since it was asked for; None when that was in another life, or it has changed since."""
        asked_at = self._asked_at.get(listing)
        return None if asked_at is None else self._clock.monotonic() - asked_at

    def asked(self, listing: Listing) -> None:
        """It is being asked for. Also when that fails, it is not asked for again at once."""
        self._asked_at[listing] = self._clock.monotonic()
        self._current.discard(listing)

    def is_current(self, listing: Listing) -> bool:
        """Whether it was answered when it was last asked for."""
        return listing in self._current

    def changes(self) -> AbstractContextManager[ChangeStream]:
        """What has changed of it, from entering on."""
        return self._changes.listen(self._upstream)

    def tell(self, change: Change) -> None:
        """Take what the upstream told unasked."""
        if change.listing is not None:
            for listing in TOLD_WITH.get(change.listing, (change.listing,)):
                self._asked_at.pop(listing, None)
                self._told.add(listing)
        self._changes.publish(change)

    async def introduce(self, profile: Profile) -> None:
        if not _is_small(profile):
            log.warning("upstream.profile_dropped", extra={"upstream": self._upstream})
        elif profile != self.profile or PROFILE in self._not_kept:
            self.profile = profile
            await self._save(PROFILE, asdict(profile))

    async def put(self, listing: Listing, entries: Sequence[Mapping[str, Any]]) -> None:
        known, told = self._lists.get(listing), listing in self._told
        self._told.discard(listing)
        self._current.add(listing)
        if known is not None and await _are_equal(entries, known):
            if listing in self._not_kept:
                await self._save(listing, entries)
            return
        self._set(listing, entries)
        if known is not None and not told:
            told_as = Listing.RESOURCES if listing is Listing.RESOURCE_TEMPLATES else listing
            self._changes.publish(Change(upstream=self._upstream, listing=told_as))
        await self._save(listing, entries)

    def restore(self, part: CatalogPart) -> None:
        if part.part == PROFILE:
            self.profile = Profile(**part.body)
        else:
            self._set(Listing(part.part), part.body)

    async def _save(self, part: str, body: Any) -> None:
        """What cannot be kept now is tried again when it is told again."""
        kept = await self._keep(self._upstream, part, body)
        (self._not_kept.discard if kept else self._not_kept.add)(part)

    def _set(self, listing: Listing, entries: Sequence[Mapping[str, Any]]) -> None:
        self._lists[listing] = entries
        if listing is Listing.TOOLS:
            self.tools = tools_of(entries)


async def _are_equal(some: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> bool:
    """In turns with everybody else: comparing two large lists takes as long as decoding one."""
    if len(some) != len(others):
        return False
    for start in range(0, len(some), ENTRIES_AT_ONCE):
        end = start + ENTRIES_AT_ONCE
        if some[start:end] != others[start:end]:
            return False
        if end < len(some):
            await asyncio.sleep(0)
    return True


def _is_small(profile: Profile) -> bool:
    try:
        return len(jsontext.dumps(asdict(profile))) <= PROFILE_BYTES_MAX
    except TypeError:
        return False


class Shelves:
    """Those of all upstreams. Without a store what they hold is forgotten with the process."""

    def __init__(self, *, clock: Clock, changes: Changes, store: Store | None) -> None:
        self._clock = clock
        self._changes = changes
        self._store = store
        self._shelves: dict[str, Shelf] = {}

    def of(self, upstream: str) -> Shelf:
        if upstream not in self._shelves:
            self._shelves[upstream] = Shelf(upstream, clock=self._clock, changes=self._changes, keep=self._save)
        return self._shelves[upstream]

    async def load(self, upstreams: Collection[str]) -> None:
        """Take up what is kept of these, and forget the others."""
        if self._store is None:
            return

        async def work(tx: Transaction) -> Sequence[CatalogPart]:
            await tx.catalog.keep_only(upstreams)
            return await tx.catalog.all()

        for part in await self._store.write(work):
            try:
                self.of(part.upstream).restore(part)
            except (TypeError, ValueError):  # another version kept it: it will be told again
                log.warning("upstream.catalog_not_read", extra={"upstream": part.upstream})

    def drop(self, upstreams: Iterable[str]) -> None:
        """Take these off: whatever gets one of their names next begins with an empty shelf."""
        for upstream in upstreams:
            del self._shelves[upstream]

    async def keep_only(self, upstreams: Collection[str]) -> None:
        """Forget what the store has of the others. What cannot be forgotten now is when this is next done, or at the start."""
        if self._store is None:
            return
        try:
            await self._store.write(lambda tx: tx.catalog.keep_only(upstreams))
        except StoreUnavailable:
            log.warning("upstream.catalog_not_forgotten")

    async def _save(self, upstream: str, part: str, body: Any) -> bool:
        if self._store is None:
            return True

        async def work(tx: Transaction) -> None:
            await tx.catalog.put(CatalogPart(upstream=upstream, part=part, body=body, fetched_at=tx.now()))

        try:
            await self._store.write(work)
        except StoreUnavailable:
            log.warning("upstream.catalog_not_kept", extra={"upstream": upstream})
            return False
        return True
