"""The lists of one connection: the common ones, and the tools that the upstream lists for clients that can elicit.

Some servers list a tool only for a client that declared elicitation. A client that can elicit gets that list:

    modern                   each request declares the capabilities of its client
    legacy, over HTTP        from a session that declares elicitation; it is opened for the list and closed
    legacy, one child        the common list: the child has one session, which declares elicitation
"""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, Protocol

import anyio

from ringback.domain.clock import Clock
from ringback.domain.upstreams import Listing, ToolInfo, UpstreamChange
from ringback.upstreams.catalog.catalog_cache import CatalogCache, OwnerCaches
from ringback.upstreams.catalog.catalog_refresher import LIST_TIMEOUT_SECONDS, CatalogRefresher
from ringback.upstreams.errors import UpstreamUnreachable
from ringback.upstreams.faults import FaultCounter
from ringback.upstreams.handshake import ModernProbe
from ringback.upstreams.session import UpstreamSession
from ringback.upstreams.session_ports import ELICITATION_CAPABILITY

log = logging.getLogger(__name__)

LOGGED_TOOLS_MAX: Final = 5
LOGGED_LENGTH_MAX: Final = 64
FAILED_LIST_AGE_SECONDS_MAX: Final = 30.0
"""Between two attempts to fetch a list that there is none of yet, and the tools for clients that can elicit, which get the
common list until then. Many servers take longer for their first list than `LIST_TIMEOUT_SECONDS`."""


class ListingSessions(Protocol):
    """What this module needs of a connection."""

    def get_open_session(self) -> UpstreamSession | None:
        """The shared session; None while the upstream is not connected."""
        ...

    def has_eliciting_sessions(self, shared: UpstreamSession) -> bool:
        """Whether sessions other than the shared one declare elicitation in their handshake."""
        ...

    def open_dedicated_session(self, **options: Any) -> AbstractAsyncContextManager[UpstreamSession]: ...


class UpstreamLists:
    def __init__(
        self,
        sessions: ListingSessions,
        caches: OwnerCaches,
        *,
        upstream: str,
        clock: Clock,
        faults: FaultCounter,
        replaced: anyio.Event,
    ) -> None:
        """Once `replaced` is set, a newer connection writes to the caches and this one stops."""
        self.cache = caches.common
        self._upstream = upstream
        self._unlisted_tools: Sequence[str] = []
        """What the last `warn_of_unlisted_tools` found."""
        self._sessions = sessions
        self._eliciting_cache = caches.eliciting
        self._announcing_session: UpstreamSession | None = None
        """The session declaring elicitation that last announced a change of its tools. It may be closed."""

        def make_refresher(
            cache: CatalogCache,
            open_session: Callable[[], AbstractAsyncContextManager[UpstreamSession | None]],
            capabilities: Mapping[str, Any] | None,
        ) -> CatalogRefresher:
            return CatalogRefresher(
                cache,
                upstream=upstream,
                clock=clock,
                faults=faults,
                replaced=replaced,
                open_listing_session=open_session,
                client_capabilities=capabilities,
            )

        self.refresher = make_refresher(caches.common, self._open_shared_session, None)
        self._eliciting_refresher = make_refresher(
            caches.eliciting, self._open_eliciting_session, ELICITATION_CAPABILITY
        )

    def get_cached_tool(self, name: str) -> ToolInfo | None:
        """The tool as last listed, also if the upstream lists it only for clients that can elicit."""
        return (self.cache.tools or {}).get(name) or (self._eliciting_cache.tools or {}).get(name)

    def warn_of_unlisted_tools(self, names: Iterable[str]) -> None:
        """Log which of these tools no list has. The same ones are logged once, however often the upstream reconnects."""
        unlisted = (
            [] if self.cache.tools is None else sorted(each for each in names if self.get_cached_tool(each) is None)
        )
        if unlisted and unlisted != self._unlisted_tools:
            shown = [each[:LOGGED_LENGTH_MAX] for each in unlisted[:LOGGED_TOOLS_MAX]]
            log.warning("upstream.tools_not_listed", extra={"upstream": self._upstream, "tools": shown})
        self._unlisted_tools = unlisted

    def find_cached_tools(self, *, age_seconds_max: float) -> Mapping[str, ToolInfo] | None:
        """The common tools by name, without waiting for a list that is being fetched for another request.

        None if they were never listed, have changed, or the list is older.
        """
        age = self.cache.get_age_seconds(Listing.TOOLS)
        return self.cache.tools if age is not None and age <= age_seconds_max else None

    def attach_session(self, session: UpstreamSession) -> None:
        """Let a session find the tools of these lists, also those that are listed later on another session."""
        session.find_tool = self.get_cached_tool

    async def get_tools(self, *, age_seconds_max: float, can_elicit: bool) -> Mapping[str, ToolInfo] | None:
        """The tools by name, fetched again if the list is older or has changed; None if they were never listed."""
        cache, _ = await self._refresh(Listing.TOOLS, age_seconds_max=age_seconds_max, can_elicit=can_elicit)
        return cache.tools

    async def get_fresh_tools(self, *, age_seconds_max: float, can_elicit: bool) -> Mapping[str, ToolInfo] | None:
        """Like `get_tools`, but None if the list cannot be fetched now."""
        cache, is_fresh = await self._refresh(Listing.TOOLS, age_seconds_max=age_seconds_max, can_elicit=can_elicit)
        return cache.tools if is_fresh else None

    async def get_entries(
        self, listing: Listing, *, age_seconds_max: float, can_elicit: bool
    ) -> Sequence[Mapping[str, Any]] | None:
        """The entries of a list, fetched as by `get_tools`."""
        cache, _ = await self._refresh(listing, age_seconds_max=age_seconds_max, can_elicit=can_elicit)
        return cache.get_entries(listing)

    def handle_change(self, change: UpstreamChange, *, announcing_session: UpstreamSession | None = None) -> None:
        """Handle a change notification; `announcing_session` is the session declaring elicitation that sent it."""
        if change.listing is Listing.TOOLS:
            self._announcing_session = announcing_session
            self._eliciting_cache.mark_outdated(Listing.TOOLS)
        self.cache.handle_change(change)

    def handle_reconnect(self) -> None:
        """The common tools of a new shared session have just been fetched."""
        self._eliciting_cache.mark_outdated(Listing.TOOLS)

    async def _refresh(
        self, listing: Listing, *, age_seconds_max: float, can_elicit: bool
    ) -> tuple[CatalogCache, bool]:
        """The cache of the list, and whether its list is fresh.

        The common tools stand in for those of clients that can elicit until these are listed; then they are not fresh.
        """
        cache, lacks_eliciting = self._eliciting_cache, False
        if can_elicit and listing is Listing.TOOLS and self._may_differ():
            age_max = age_seconds_max if cache.is_current(listing) else _limit_age(age_seconds_max)
            is_fresh = await self._eliciting_refresher.refresh_listing(listing, age_seconds_max=age_max)
            if cache.tools is not None:
                return cache, is_fresh
            lacks_eliciting = True
        age_max = age_seconds_max if self.cache.get_entries(listing) is not None else _limit_age(age_seconds_max)
        is_fresh = await self.refresher.refresh_listing(listing, age_seconds_max=age_max)
        return self.cache, is_fresh and not lacks_eliciting

    def _may_differ(self) -> bool:
        """Whether the upstream may list other tools for clients that can elicit than in the shared session."""
        shared = self._sessions.get_open_session()
        return shared is None or shared.protocol.is_modern or self._sessions.has_eliciting_sessions(shared)

    @asynccontextmanager
    async def _open_shared_session(self) -> AsyncGenerator[UpstreamSession | None]:
        yield self._sessions.get_open_session()

    @asynccontextmanager
    async def _open_eliciting_session(self) -> AsyncGenerator[UpstreamSession | None]:
        async with AsyncExitStack() as stack:
            yield await self._enter_eliciting_session(stack)

    async def _enter_eliciting_session(self, stack: AsyncExitStack) -> UpstreamSession | None:
        """A session for the tools for clients that can elicit.

        On legacy it is the session that announced the last change, because some servers enable tools for a session.
        """
        shared, announcing = self._sessions.get_open_session(), self._announcing_session
        if shared is None or shared.protocol.is_modern:
            return shared
        if announcing is not None and not announcing.closed.is_set():
            return announcing
        with suppress(UpstreamUnreachable), anyio.move_on_after(LIST_TIMEOUT_SECONDS):
            return await stack.enter_async_context(
                self._sessions.open_dedicated_session(
                    accepts_elicitation=True, awaits_stream=False, probe=ModernProbe.SKIP
                )
            )
        self._eliciting_cache.mark_requested(Listing.TOOLS)
        return None


def _limit_age(age_seconds_max: float) -> float:
    return min(age_seconds_max, FAILED_LIST_AGE_SECONDS_MAX)
