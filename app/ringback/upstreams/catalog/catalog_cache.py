"""The last known profile and lists of each upstream: in memory, and in the store for times when the upstream is away.

    connection ──▶ put_profile, put_listing    ──▶ memory ──▶ store, if the part has changed
               ──▶ handle_change               ──▶ the list is outdated; listeners get the change
    start      ──▶ load_caches                 ──▶ memory; a loaded list has no age, so it is fetched before it is trusted
    first use  ──▶ restore_caches              ──▶ the same for the connection of one owner of credentials
    removed    ──▶ remove_caches, remove_other_upstreams ──▶ memory and store forget the upstream

A list that differs from the cached one also publishes a change: the upstream may have changed while it was away.

An upstream may list more tools for clients that can elicit. That list has a cache of its own, which a connection fills when a
client needs it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from ringback.domain import jsontext
from ringback.domain.clock import Clock, seconds
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER, UnreadableTokens
from ringback.domain.upstream_rows import ELICITING_PREFIX, PROFILE_PART, CatalogPart
from ringback.domain.upstreams import Listing, ToolInfo, UpstreamChange, UpstreamProfile
from ringback.upstreams.catalog.listing import ENTRIES_PER_LOOP_TURN, parse_tools
from ringback.upstreams.oauth.followed_login import FollowedLogin
from ringback.upstreams.subscriptions.change_notifications import ChangeNotifications, ChangeStream

log = logging.getLogger(__name__)

SavePart = Callable[[str, str, Any], Awaitable[bool]]
"""Stores a part of the catalog of an upstream; False if the store is unavailable."""

RETENTION_SECONDS: Final = 30 * 86_400.0
"""How long the lists of a principal's connection are kept after it was last opened. They bridge an absence of the upstream; a
principal that returns later waits for the first list."""
RESAVE_AFTER_SECONDS: Final = 86_400.0
"""The age at which the same list is stored again, so that its age says when the principal used the upstream last."""
REMOVED_AT_ONCE: Final = 100
"""Parts that one transaction removes: each may have megabytes."""
PROFILE_BYTES_MAX: Final = 1024 * 1024
"""A profile consists mostly of instructions for a model, which are far smaller."""

LISTINGS_BY_CHANGE: Final = {Listing.RESOURCES: (Listing.RESOURCES, Listing.RESOURCE_TEMPLATES)}
"""One notification stands for both lists."""


class CatalogCache:
    """The profile and lists of one upstream, as it shows them to one owner of credentials."""

    def __init__(
        self,
        upstream: str,
        *,
        clock: Clock,
        change_notifications: ChangeNotifications,
        save_part: SavePart,
        owner: Principal = SHARED_OWNER,
    ) -> None:
        self._upstream = upstream
        self._owner = owner
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
        """The changes of this upstream, as this owner gets them, from now on."""
        return self._change_notifications.subscribe_changes(self._upstream, principal=self._owner)

    def handle_change(self, change: UpstreamChange) -> None:
        if change.listing is not None:
            for listing in LISTINGS_BY_CHANGE.get(change.listing, (change.listing,)):
                self.mark_outdated(listing)
                self._notified.add(listing)
        self._change_notifications.publish_change(replace(change, owner=self._owner))

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
                UpstreamChange(upstream=self._upstream, listing=listing_in_change, owner=self._owner)
            )
        await self._save_or_mark(listing, entries)

    def restore_part(self, part: CatalogPart, *, is_saved: bool = True) -> None:
        if not is_saved:
            self._unsaved.add(part.part)
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


@dataclass(slots=True)
class ListsLogin:
    """Whose login the lists of a connection are for; None if the upstream takes none."""

    followed: FollowedLogin | None = None


class OwnerCaches(NamedTuple):
    """The caches of one connection."""

    common: CatalogCache
    eliciting: CatalogCache
    """The tools that the upstream lists for clients that can elicit."""
    login: ListsLogin

    def keep_to_login(self, followed: FollowedLogin) -> None:
        """Store nothing any more once another login has taken its place."""
        self.login.followed = followed

    def restore_parts(self, parts: Iterable[CatalogPart], *, resave_before: datetime | None = None) -> None:
        """Parts that were stored before `resave_before` are stored again with the next response, also if it is the same."""
        for part in parts:
            is_eliciting = part.part.startswith(ELICITING_PREFIX)
            cache = self.eliciting if is_eliciting else self.common
            try:
                is_old = resave_before is not None and part.fetched_at < resave_before
                cache.restore_part(replace(part, part=part.part.removeprefix(ELICITING_PREFIX)), is_saved=not is_old)
            except (TypeError, ValueError):  # stored by another version: it is fetched again
                log.warning("upstream.catalog_not_read", extra={"upstream": part.upstream})


class CatalogCaches:
    """The caches of all upstreams. Without a store they are lost with the process."""

    def __init__(self, *, clock: Clock, changes: ChangeNotifications, store: Store | None) -> None:
        self._clock = clock
        self._change_notifications = changes
        self._store = store
        self._caches: dict[str, OwnerCaches] = {}
        """Those of shared connections, by the name of the upstream. They outlive its connections."""

    def get_caches(self, upstream: str) -> OwnerCaches:
        """The caches of the shared connection."""
        if upstream not in self._caches:
            self._caches[upstream] = self.make_caches(upstream, SHARED_OWNER)
        return self._caches[upstream]

    def make_caches(self, upstream: str, owner: Principal) -> OwnerCaches:
        """New caches for a connection of this owner. `restore_caches` fills them with what is stored."""
        login = ListsLogin()
        common, eliciting = (self._make_cache(upstream, owner, each, login) for each in ("", ELICITING_PREFIX))
        return OwnerCaches(common, eliciting, login)

    def _make_cache(self, upstream: str, owner: Principal, prefix: str, login: ListsLogin) -> CatalogCache:
        return CatalogCache(
            upstream,
            owner=owner,
            clock=self._clock,
            change_notifications=self._change_notifications,
            save_part=lambda upstream, part, body: self._save_part(upstream, owner, prefix + part, body, login),
        )

    async def restore_caches(self, caches: OwnerCaches, upstream: str, owner: Principal) -> None:
        """Load what is stored for this owner. If the store is unavailable, the lists are fetched from the upstream."""
        if self._store is None:
            return
        try:
            parts = await self._store.read(lambda tx: tx.owned_catalog.list_parts(upstream, owner))
            caches.restore_parts(parts, resave_before=self._clock.now() - seconds(RESAVE_AFTER_SECONDS))
        except StoreUnavailable:
            log.warning("upstream.catalog_not_read", extra={"upstream": upstream})

    async def load_caches(self, upstreams: Collection[str]) -> None:
        """Load the stored parts of these upstreams and delete those of all others."""
        if self._store is None:
            return

        async def work(tx: Transaction) -> Sequence[CatalogPart]:
            await tx.catalog.remove_other_upstreams(upstreams)
            return await tx.catalog.list_all()

        for part in await self._store.write(work):
            self.get_caches(part.upstream).restore_parts([part])

    def remove_caches(self, upstreams: Iterable[str]) -> None:
        """Remove these caches, so that a later upstream with the same name starts with an empty cache."""
        for upstream in upstreams:
            self._caches.pop(upstream, None)

    async def remove_other_upstreams(self, upstreams: Collection[str]) -> None:
        """Delete the stored parts of all other upstreams. A failed deletion is repeated by the next call or start."""
        if (store := self._store) is None:
            return
        try:
            await store.write(lambda tx: tx.catalog.remove_other_upstreams(upstreams))
        except StoreUnavailable:
            log.warning("upstream.catalog_not_forgotten")
        await self.remove_owned_parts(upstreams)

    async def remove_owned_parts(self, upstreams: Collection[str]) -> None:
        """Delete what is stored of all other upstreams for single principals."""
        if (store := self._store) is None:
            return
        try:
            for removed in set(await store.read(lambda tx: tx.owned_catalog.list_upstreams())) - set(upstreams):
                await _repeat_until_empty(store, partial(_remove_upstream, removed))
        except StoreUnavailable:
            log.warning("upstream.catalog_not_forgotten")

    async def remove_old_parts(self) -> None:
        """Delete parts of principals that have not used their upstream for a long time."""
        if (store := self._store) is None:
            return
        try:
            await _repeat_until_empty(store, _remove_old)
        except StoreUnavailable:
            log.warning("upstream.catalog_not_forgotten")

    async def _save_part(self, upstream: str, owner: Principal, part: str, body: Any, login: ListsLogin) -> bool:
        if self._store is None:
            return True

        async def work(tx: Transaction) -> None:
            if login.followed is not None and not await _is_stored(tx, upstream, owner, login.followed):
                return
            saved = CatalogPart(upstream=upstream, part=part, body=body, fetched_at=tx.now())
            if owner == SHARED_OWNER:
                await tx.catalog.save_part(saved)
            else:
                await tx.owned_catalog.save_part(owner, saved)

        try:
            await (self._store.write(work) if owner == SHARED_OWNER else self._store.write_for(owner, work))
        except StoreUnavailable:
            log.warning("upstream.catalog_not_kept", extra={"upstream": upstream})
            return False
        return True


async def _is_stored(tx: Transaction, upstream: str, owner: Principal, login: FollowedLogin) -> bool:
    """Whether this login is still the owner's. Until the unit ends, no other login replaces it."""
    tokens = await tx.upstream_tokens.get(upstream, owner)
    if isinstance(tokens, UnreadableTokens):  # whose they are is not known here
        return False
    return not login.has_ended and login.login_id == (None if tokens is None else tokens.login_id)


async def _repeat_until_empty(store: Store, remove: Callable[[Transaction], Awaitable[int]]) -> None:
    while await store.write(remove) == REMOVED_AT_ONCE:
        pass


async def _remove_upstream(upstream: str, tx: Transaction) -> int:
    return await tx.owned_catalog.remove_upstream(upstream, limit=REMOVED_AT_ONCE)


async def _remove_old(tx: Transaction) -> int:
    return await tx.owned_catalog.remove_old(cutoff=tx.now() - seconds(RETENTION_SECONDS), limit=REMOVED_AT_ONCE)
