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
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.upstream_rows import PROFILE_PART, CatalogPart
from ringback.domain.upstreams import Listing, ToolInfo, UpstreamChange, UpstreamProfile
from ringback.upstreams.catalog.listing import ENTRIES_PER_LOOP_TURN, parse_tools
from ringback.upstreams.subscriptions.change_notifications import ChangeNotifications, ChangeStream

log = logging.getLogger(__name__)

SavePart = Callable[[str, str, Any], Awaitable[bool]]
"""Puts a part of an upstream's catalog into the store; False when that could not be done now."""

PROFILE_BYTES_MAX: Final = 1024 * 1024
"""Most of it are instructions for a model, which would read no book of this size."""

LISTINGS_BY_CHANGE: Final = {Listing.RESOURCES: (Listing.RESOURCES, Listing.RESOURCE_TEMPLATES)}
"""One notification tells of both lists."""


class CatalogCache:
    """Of one upstream; it outlives its connections."""

    def __init__(
        self, upstream: str, *, clock: Clock, change_notifications: ChangeNotifications, save_part: SavePart
    ) -> None:
        self._upstream = upstream
        self._clock = clock
        self._change_notifications = change_notifications
        self._save_part = save_part
        self._lists: dict[Listing, Sequence[Mapping[str, Any]]] = {}
        self._requested_at: dict[Listing, float] = {}
        self._notified: set[Listing] = set()
        self._current: set[Listing] = set()
        self._unsaved: set[str] = set()
        self.profile: UpstreamProfile | None = None
        self.tools: Mapping[str, ToolInfo] | None = None
        """As last listed; None when they never were."""

    def get_entries(self, listing: Listing) -> Sequence[Mapping[str, Any]] | None:
        return self._lists.get(listing)

    def get_age_seconds(self, listing: Listing) -> float | None:
        """Since it was asked for; None when that was in another life, or it has changed since."""
        requested_at = self._requested_at.get(listing)
        return None if requested_at is None else self._clock.monotonic() - requested_at

    def mark_requested(self, listing: Listing) -> None:
        """It is being asked for. Also when that fails, it is not asked for again at once."""
        self._requested_at[listing] = self._clock.monotonic()
        self._current.discard(listing)

    def is_current(self, listing: Listing) -> bool:
        """Whether it was answered when it was last asked for."""
        return listing in self._current

    def subscribe_changes(self) -> AbstractContextManager[ChangeStream]:
        """What has changed of it, from entering on."""
        return self._change_notifications.subscribe_changes(self._upstream)

    def handle_change(self, change: UpstreamChange) -> None:
        """Take what the upstream told unasked."""
        if change.listing is not None:
            for listing in LISTINGS_BY_CHANGE.get(change.listing, (change.listing,)):
                self._requested_at.pop(listing, None)
                self._notified.add(listing)
        self._change_notifications.publish_change(change)

    async def put_profile(self, profile: UpstreamProfile) -> None:
        if not _is_small(profile):
            log.warning("upstream.profile_dropped", extra={"upstream": self._upstream})
        elif profile != self.profile or PROFILE_PART in self._unsaved:
            self.profile = profile
            await self._save_or_mark(PROFILE_PART, asdict(profile))

    async def put_listing(self, listing: Listing, entries: Sequence[Mapping[str, Any]]) -> None:
        known, was_notified = self._lists.get(listing), listing in self._notified
        self._notified.discard(listing)
        self._current.add(listing)
        if known is not None and await _are_equal(entries, known):
            if listing in self._unsaved:
                await self._save_or_mark(listing, entries)
            return
        self._set_entries(listing, entries)
        if known is not None and not was_notified:
            listing_in_change = Listing.RESOURCES if listing is Listing.RESOURCE_TEMPLATES else listing
            self._change_notifications.publish_change(
                UpstreamChange(upstream=self._upstream, listing=listing_in_change)
            )
        await self._save_or_mark(listing, entries)

    def restore_part(self, part: CatalogPart) -> None:
        if part.part == PROFILE_PART:
            self.profile = UpstreamProfile(**part.body)
        else:
            self._set_entries(Listing(part.part), part.body)

    async def _save_or_mark(self, part: str, body: Any) -> None:
        """What cannot be kept now is tried again when it is told again."""
        saved = await self._save_part(self._upstream, part, body)
        (self._unsaved.discard if saved else self._unsaved.add)(part)

    def _set_entries(self, listing: Listing, entries: Sequence[Mapping[str, Any]]) -> None:
        self._lists[listing] = entries
        if listing is Listing.TOOLS:
            self.tools = parse_tools(entries)


async def _are_equal(some: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> bool:
    """In turns with everybody else: comparing two large lists takes as long as decoding one."""
    if len(some) != len(others):
        return False
    for start in range(0, len(some), ENTRIES_PER_LOOP_TURN):
        end = start + ENTRIES_PER_LOOP_TURN
        if some[start:end] != others[start:end]:
            return False
        if end < len(some):
            await asyncio.sleep(0)
    return True


def _is_small(profile: UpstreamProfile) -> bool:
    try:
        return len(jsontext.dumps(asdict(profile))) <= PROFILE_BYTES_MAX
    except TypeError:
        return False


class CatalogCaches:
    """Those of all upstreams. Without a store what they hold is forgotten with the process."""

    def __init__(self, *, clock: Clock, changes: ChangeNotifications, store: Store | None) -> None:
        self._clock = clock
        self._change_notifications = changes
        self._store = store
        self._caches: dict[str, CatalogCache] = {}

    def get_cache(self, upstream: str) -> CatalogCache:
        if upstream not in self._caches:
            self._caches[upstream] = CatalogCache(
                upstream, clock=self._clock, change_notifications=self._change_notifications, save_part=self._save_part
            )
        return self._caches[upstream]

    async def load_caches(self, upstreams: Collection[str]) -> None:
        """Take up what is kept of these, and forget the others."""
        if self._store is None:
            return

        async def work(tx: Transaction) -> Sequence[CatalogPart]:
            await tx.catalog.remove_other_upstreams(upstreams)
            return await tx.catalog.list_all()

        for part in await self._store.write(work):
            try:
                self.get_cache(part.upstream).restore_part(part)
            except (TypeError, ValueError):  # another version kept it: it will be told again
                log.warning("upstream.catalog_not_read", extra={"upstream": part.upstream})

    def remove_caches(self, upstreams: Iterable[str]) -> None:
        """Take these off: whatever gets one of their names next begins with an empty shelf."""
        for upstream in upstreams:
            del self._caches[upstream]

    async def remove_other_upstreams(self, upstreams: Collection[str]) -> None:
        """Forget what the store has of the others. What cannot be forgotten now is when this is next done, or at the start."""
        if self._store is None:
            return
        try:
            await self._store.write(lambda tx: tx.catalog.remove_other_upstreams(upstreams))
        except StoreUnavailable:
            log.warning("upstream.catalog_not_forgotten")

    async def _save_part(self, upstream: str, part: str, body: Any) -> bool:
        if self._store is None:
            return True

        async def work(tx: Transaction) -> None:
            await tx.catalog.save_part(CatalogPart(upstream=upstream, part=part, body=body, fetched_at=tx.now()))

        try:
            await self._store.write(work)
        except StoreUnavailable:
            log.warning("upstream.catalog_not_kept", extra={"upstream": upstream})
            return False
        return True
