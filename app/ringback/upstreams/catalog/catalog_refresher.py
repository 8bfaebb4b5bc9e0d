"""Keeps the cached lists of one upstream current: fetches them for a new session, by age, and after change notifications.

A refresher of its own fetches the tools that the upstream lists for clients that can elicit, only by age.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import anyio

from ringback.domain.clock import Clock
from ringback.domain.upstreams import Listing, UpstreamChange
from ringback.protocol.errors import RequestFailed
from ringback.protocol.mcp_events.names import LIST_CHANGED_FLAG, announces_event_changes
from ringback.upstreams.catalog.catalog_cache import LISTINGS_BY_CHANGE, CatalogCache
from ringback.upstreams.catalog.listing import fetch_listing
from ringback.upstreams.connection_problems import classify_problem
from ringback.upstreams.faults import Fault, FaultCounter
from ringback.upstreams.instances import LeadsBackHere
from ringback.upstreams.received_streams import ACKNOWLEDGE_TIMEOUT_SECONDS
from ringback.upstreams.session import RELISTEN_SECONDS, UpstreamSession

log = logging.getLogger(__name__)

LIST_TIMEOUT_SECONDS: Final = 5.0
"""For all pages of a list. Short, because the start of a call waits for it."""
RELIST_INTERVAL_SECONDS: Final = 1.0
"""Between two fetches after change notifications. A request that needs a fresh list does not wait for it."""
RELIST_INTERVAL_SECONDS_MAX: Final = 30.0
"""The interval doubles up to this while the upstream reports changes without a pause."""


class CatalogRefresher:
    def __init__(
        self,
        cache: CatalogCache,
        *,
        upstream: str,
        clock: Clock,
        faults: FaultCounter,
        replaced: anyio.Event,
        open_listing_session: Callable[[], AbstractAsyncContextManager[UpstreamSession | None]],
        client_capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        """Once `replaced` is set, a newer connection writes to the cache and this one stops.

        `open_listing_session` yields None while the upstream is not connected. `client_capabilities` are declared with each
        request to a modern upstream; None for the lists of clients without capabilities.
        """
        self._cache = cache
        self._upstream = upstream
        self._clock = clock
        self._faults = faults
        self._replaced = replaced
        self._open_listing_session = open_listing_session
        self._client_capabilities = client_capabilities
        self._lock = anyio.Lock(fast_acquire=True)
        """Each request for a list acquires it. Without `fast_acquire` the lock is held for one turn of the event loop, so that
        64 concurrent requests need 64 turns."""

    async def refresh_listing(self, listing: Listing, *, age_seconds_max: float) -> bool:
        """Fetch the list if the cached one is older; False if the upstream is not connected or its last response failed."""
        async with self._lock:
            age = self._cache.get_age_seconds(listing)
            if age is not None and age <= age_seconds_max:
                return self._cache.is_current(listing)
            async with self._open_listing_session() as session:
                if session is None:
                    return False
                try:
                    return await self._fetch_listing(session, listing)
                except LeadsBackHere:
                    session.close_to_new_requests()  # the next handshake or its list says so again
                    return False

    async def fetch_tools(self, session: UpstreamSession) -> None:
        """Fetch the tools of a session that does not serve calls yet."""
        await self._fetch_listing(session, Listing.TOOLS)

    async def follow_session(self, session: UpstreamSession) -> None:
        """Fetch the other lists, for times when the upstream is away, and follow their changes until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_event_types, session)
            await self._follow_common_lists(session)

    async def _follow_event_types(self, session: UpstreamSession) -> None:
        """Follow changes of the event types on a stream of their own: the SDK's stream for lists has no flag for them.

        A legacy upstream needs no stream (`handshake`).
        """
        announces = announces_event_changes(session.profile.capabilities)
        has_followed = False
        while session.protocol.is_modern and announces:
            async with session.stream_opener.open_listen_stream(
                {LIST_CHANGED_FLAG: True}, client_capabilities={}
            ) as stream:
                if (await stream.wait_acknowledged() or {}).get(LIST_CHANGED_FLAG):
                    has_followed = True
                    while await stream.next_notification() is not None:
                        self._cache.handle_change(UpstreamChange(upstream=self._upstream, listing=Listing.EVENTS))
                elif not has_followed:
                    return
            await self._clock.sleep(RELISTEN_SECONDS)
            await self.refresh_listing(
                Listing.EVENTS, age_seconds_max=RELISTEN_SECONDS
            )  # it may have changed meanwhile

    async def _follow_common_lists(self, session: UpstreamSession) -> None:
        """Fetch the lists when a stream for their changes starts, and without one if none starts in time."""
        has_begun = anyio.Event()

        async def fetch_all() -> None:
            has_begun.set()
            await self._fetch_listings(session, Listing)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._fetch_after_silence, session, has_begun)
            if not await session.follow_list_changes(self._clock, on_subscribed=fetch_all):
                await self._fetch_once(session, has_begun)

    async def _fetch_after_silence(self, session: UpstreamSession, has_begun: anyio.Event) -> None:
        """A proxy that keeps responses until they are whole passes on neither the start of a stream nor its refusal."""
        with anyio.move_on_after(ACKNOWLEDGE_TIMEOUT_SECONDS):
            await has_begun.wait()
        await self._fetch_once(session, has_begun)

    async def _fetch_once(self, session: UpstreamSession, has_begun: anyio.Event) -> None:
        """Fetch what the start of the session did not fetch, unless that is done or being done."""
        if not has_begun.is_set():
            has_begun.set()
            await self._fetch_listings(session, [listing for listing in Listing if listing is not Listing.TOOLS])

    async def refresh_changed_listings(self) -> None:
        """Fetch each list that a notification reports as changed, so that the cache has it if the upstream goes away."""
        interval, refreshed_at = RELIST_INTERVAL_SECONDS, -math.inf
        with self._cache.subscribe_changes() as changes:
            async for change in changes:
                if change.listing is None:
                    continue
                has_paused = self._clock.monotonic() - refreshed_at > 2 * interval
                interval = RELIST_INTERVAL_SECONDS if has_paused else min(2 * interval, RELIST_INTERVAL_SECONDS_MAX)
                for listing in LISTINGS_BY_CHANGE.get(change.listing, (change.listing,)):
                    await self.refresh_listing(listing, age_seconds_max=math.inf)
                refreshed_at = self._clock.monotonic()
                await self._clock.sleep(interval)

    async def _fetch_listings(self, session: UpstreamSession, listings: Iterable[Listing]) -> None:
        for listing in listings:
            async with self._lock:
                await self._fetch_listing(session, listing)

    async def _fetch_listing(self, session: UpstreamSession, listing: Listing) -> bool:
        if self._replaced.is_set():
            return False
        self._cache.mark_requested(listing)
        try:
            with anyio.fail_after(LIST_TIMEOUT_SECONDS):
                entries = await fetch_listing(
                    session,
                    listing,
                    client_capabilities=self._client_capabilities,
                    on_truncated=lambda: self._faults.increment(Fault.LIST_CUT),
                )
        except (RequestFailed, TimeoutError) as error:
            problem = str(classify_problem(error))
            log.warning("upstream.not_listed", extra={"upstream": self._upstream, "problem": problem})
            return False
        if self._replaced.is_set():
            return False  # replaced while the request ran
        await self._cache.put_listing(listing, entries)
        return True
