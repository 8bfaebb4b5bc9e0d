"""The last known profile and lists of each upstream: in memory, and in the store for times when the upstream is away.

    connection ──▶ put_profile, put_listing    ──▶ memory ──▶ store, if the part has changed
               ──▶ handle_change               ──▶ the list is outdated; listeners get the change
    start      ──▶ load_caches                 ──▶ memory; a loaded list has no age, so it is fetched before it is trusted
    removed    ──▶ remove_caches, remove_other_upstreams ──▶ memory and store forget the upstream

A list that differs from the cached one also publishes a change: the upstream may have changed while it was away.

An upstream may list more tools for clients that can elicit. That list has a cache of its own, which a connection fills when a
client needs it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.upstream_rows import ELICITING_PREFIX, PROFILE_PART, CatalogPart
from ringback.domain.upstreams import Listing, ToolInfo, UpstreamChange, UpstreamProfile
from ringback.upstreams.catalog.listing import ENTRIES_PER_LOOP_TURN, parse_tools
from ringback.upstreams.subscriptions.change_notifications import ChangeNotifications, ChangeStream

log = logging.getLogger(__name__)

SavePart = Callable[[str, str, Any], Awaitable[bool]]
"""Stores a part of the catalog of an upstream; False if the store is unavailable."""

PROFILE_BYTES_MAX: Final = 1024 * 1024
"""A profile consists mostly of instructions for a model, which are far smaller."""

LISTINGS_BY_CHANGE: Final = {Listing.RESOURCES: (Listing.RESOURCES, Listing.RESOURCE_TEMPLATES)}
"""One notification stands for both lists."""


class CatalogCache:
    """The profile and lists of one upstream. It outlives the connections of the upstream."""

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
        """The tools as last listed; None if they were never listed."""

    def get_entries(self, listing: Listing) -> Sequence[Mapping[str, Any]] | None:
        return self._lists.get(listing)

    def get_age_seconds(self, listing: Listing) -> float | None:
        """Seconds since the last request for the list; None if it was loaded from the store or has changed since."""
        requested_at = self._requested_at.get(listing)
        return None if requested_at is None else self._clock.monotonic() - requested_at

    def mark_requested(self, listing: Listing) -> None:
        """Record the start of a request for the list. A failed request is not repeated at once either."""
        self._requested_at[listing] = self._clock.monotonic()
        self._current.discard(listing)

    def is_current(self, listing: Listing) -> bool:
        """Whether the last request for the list succeeded."""
        return listing in self._current

    def subscribe_changes(self) -> AbstractContextManager[ChangeStream]:
        """The changes of this upstream from now on."""
        return self._change_notifications.subscribe_changes(self._upstream)

    def handle_change(self, change: UpstreamChange) -> None:
        """Handle a change notification of the upstream."""
        if change.listing is not None:
            for listing in LISTINGS_BY_CHANGE.get(change.listing, (change.listing,)):
                self.mark_outdated(listing)
                self._notified.add(listing)
        self._change_notifications.publish_change(change)

    def mark_outdated(self, listing: Listing) -> None:
        self._requested_at.pop(listing, None)

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
        """Store a part, or mark it to be stored with the next response."""
        saved = await self._save_part(self._upstream, part, body)
        (self._unsaved.discard if saved else self._unsaved.add)(part)

    def _set_entries(self, listing: Listing, entries: Sequence[Mapping[str, Any]]) -> None:
        self._lists[listing] = entries
        if listing is Listing.TOOLS:
            self.tools = parse_tools(entries)


async def _are_equal(some: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> bool:
    """Compare with pauses for the event loop: comparing two large lists takes as long as decoding one."""
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
    """The caches of all upstreams. Without a store they are lost with the process."""

    def __init__(self, *, clock: Clock, changes: ChangeNotifications, store: Store | None) -> None:
        self._clock = clock
        self._change_notifications = changes
        self._store = store
        self._caches: dict[tuple[str, str], CatalogCache] = {}
        """By the name of the upstream and the prefix of the stored parts."""

    def get_cache(self, upstream: str) -> CatalogCache:
        return self._get_cache(upstream, "")

    def get_eliciting_cache(self, upstream: str) -> CatalogCache:
        """The tools that the upstream lists for clients that can elicit."""
        return self._get_cache(upstream, ELICITING_PREFIX)

    def _get_cache(self, upstream: str, prefix: str) -> CatalogCache:
        if (upstream, prefix) not in self._caches:
            self._caches[upstream, prefix] = CatalogCache(
                upstream,
                clock=self._clock,
                change_notifications=self._change_notifications,
                save_part=lambda upstream, part, body: self._save_part(upstream, prefix + part, body),
            )
        return self._caches[upstream, prefix]

    async def load_caches(self, upstreams: Collection[str]) -> None:
        """Load the stored parts of these upstreams and delete those of all others."""
        if self._store is None:
            return

        async def work(tx: Transaction) -> Sequence[CatalogPart]:
            await tx.catalog.remove_other_upstreams(upstreams)
            return await tx.catalog.list_all()

        for part in await self._store.write(work):
            prefix = ELICITING_PREFIX if part.part.startswith(ELICITING_PREFIX) else ""
            try:
                self._get_cache(part.upstream, prefix).restore_part(replace(part, part=part.part.removeprefix(prefix)))
            except (TypeError, ValueError):  # stored by another version: it is fetched again
                log.warning("upstream.catalog_not_read", extra={"upstream": part.upstream})

    def remove_caches(self, upstreams: Iterable[str]) -> None:
        """Remove these caches, so that a later upstream with the same name starts with an empty cache."""
        for upstream in upstreams:
            del self._caches[upstream, ""], self._caches[upstream, ELICITING_PREFIX]

    async def remove_other_upstreams(self, upstreams: Collection[str]) -> None:
        """Delete the stored parts of all other upstreams. A failed deletion is repeated by the next call or start."""
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
