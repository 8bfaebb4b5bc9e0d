"""Live lists as server-sent events: each has the rows of the first page as HTML, which a script puts into the page.

The HTML is made once for all viewers that see the same rows at the same time. A stream ends within a minute or so, and the
browser connects again. Before each frame the viewer is checked again (`ringback.ui.viewer_checks`): once its sign-in, its
portal link or its key has ended, the stream ends. A page above its owner's limit gets the rows of the moment, and asks again
later.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Send

from ringback.domain.errors import QuotaExceeded
from ringback.domain.principal import Caller
from ringback.schemas.deliveries import DeliveryListQuery
from ringback.schemas.events import EventQuery
from ringback.schemas.webhook_requests import WebhookListQuery
from ringback.services.live.home_listing import HomeContent
from ringback.services.live.listings import (
    CallListing,
    DeliveryListing,
    EventListing,
    ListedCalls,
    ListedDeliveries,
    ListedEvents,
    ListedWebhooks,
    LiveListing,
    SessionContent,
    SessionListing,
    WebhookListing,
)
from ringback.services.live.lists import LiveContent, LiveLists
from ringback.ui.call_filters import read_call_query
from ringback.ui.context import UiContext
from ringback.ui.formats import session_path
from ringback.ui.live_frames import LiveFrames
from ringback.ui.page_handlers import PageHandlers
from ringback.ui.page_routes import PageRoutes
from ringback.ui.pages.calls import link_older_calls
from ringback.ui.pages.events import show_event
from ringback.ui.pages.home import describe_home, make_home_listing
from ringback.ui.pages.sessions import describe_session, link_older_session_calls, require_session_name
from ringback.ui.pages.webhooks import describe_webhooks
from ringback.ui.query_parameters import list_filters, read_query, with_query
from ringback.ui.redirects import EVENT_STREAM
from ringback.ui.rendering import PAGE_HEADERS, Renderer
from ringback.ui.viewer import Viewer
from ringback.ui.viewer_checks import ViewerCheck, ViewerChecks

Shown = TypeVar("Shown")

LIVE_PAGE_SIZE: Final = 50
STREAM_SECONDS_MIN: Final = 40
STREAM_SECONDS_SPREAD: Final = 20
"""Viewers that connected together do not connect again together."""
RETRY_MILLISECONDS: Final = 1000
LIMITED_RETRY_MILLISECONDS: Final = 20_000
"""Until a page above its owner's limit asks again."""
_HEADERS: Final = {**PAGE_HEADERS, "X-Accel-Buffering": "no"}
"""nginx would buffer frames."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _View(Generic[Shown]):
    """One list as some viewers see it."""

    listing: LiveListing[Shown]
    template: str
    describe: Callable[[Shown], Mapping[str, Any]]
    """The values of the template."""
    variant: tuple[object, ...]
    """What `describe` depends on besides the content: viewers with equal variants and paths see the same HTML."""


class LivePages(PageHandlers):
    def __init__(self, context: UiContext, renderer: Renderer, pages: PageRoutes) -> None:
        super().__init__(context, renderer)
        self._checks = ViewerChecks(pages.viewers, context.clock)
        self._numbers = count()
        self._frames = LiveFrames(context.clock)

    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [
            pages.page("/live", self.follow_home),
            pages.page("/events/live", self.follow_events),
            pages.page("/webhooks/live", self.follow_webhooks),
            pages.page("/calls/live", self.follow_calls, in_session_portal=True),
            pages.page("/deliveries/live", self.follow_deliveries, in_session_portal=True),
            pages.page("/session/live", self.follow_session, in_session_portal=True),
        ]

    async def follow_home(self, request: Request, viewer: Viewer) -> Response:
        caller = self._view_rows(viewer, request, "ui_follow_home", repeats=True)
        listing = make_home_listing(self._context, request, caller)

        def describe(shown: HomeContent) -> Mapping[str, Any]:
            return describe_home(shown, caller, hours=listing.hours, is_live=True)

        variant = (caller.is_operator and not caller.sees_all_principals,)
        view = _View(listing=listing, template="home_state.html", describe=describe, variant=variant)
        return await self._respond(view, caller, viewer, request)

    async def follow_webhooks(self, request: Request, viewer: Viewer) -> Response:
        query = read_query(request, WebhookListQuery)
        caller = self._view_rows(viewer, request, "ui_follow_webhooks", repeats=True)
        variant = viewer.caller.principal, self._shows_owner(viewer)
        path = self._find_path(viewer, "/webhooks")

        def describe(shown: ListedWebhooks) -> Mapping[str, Any]:
            values = describe_webhooks(shown.webhooks, shown.counts, query, reader=variant[0], shows_owner=variant[1])
            return {**values, **_link_older(path, list_filters(query), shown.older)}

        view = _View(
            listing=WebhookListing(health=query.health, state=query.state, limit=LIVE_PAGE_SIZE),
            template="webhook_rows.html",
            describe=describe,
            variant=variant,
        )
        return await self._respond(view, caller, viewer, request)

    async def follow_events(self, request: Request, viewer: Viewer) -> Response:
        query = read_query(request, EventQuery)
        caller = self._view_rows(viewer, request, "ui_follow_events", repeats=True)
        variant = (self._shows_owner(viewer),)
        path, filters = self._find_path(viewer, "/events"), list_filters(query)

        def describe(shown: ListedEvents) -> Mapping[str, Any]:
            events = [show_event(event) for event in shown.events]
            return {"events": events, "shows_owner": variant[0], **_link_older(path, filters, shown.older)}

        view = _View(
            listing=EventListing(event_filter=query.to_filter(), limit=LIVE_PAGE_SIZE),
            template="event_rows.html",
            describe=describe,
            variant=variant,
        )
        return await self._respond(view, caller, viewer, request)

    async def follow_calls(self, request: Request, viewer: Viewer) -> Response:
        query = read_call_query(request.query_params, viewer)
        variant = self._shows_owner(viewer), query.is_filtered, viewer.client_session_id is None
        path = self._find_path(viewer, "/calls")

        def describe(shown: ListedCalls) -> Mapping[str, Any]:
            return {
                "calls": shown.calls,
                "shows_owner": variant[0],
                "is_filtered": variant[1],
                "links_upstreams": variant[2],
                "older": link_older_calls(path, query, shown.older),
                "newest": None,
            }

        listing = CallListing(call_filter=query.call_filter, limit=LIVE_PAGE_SIZE)
        caller = self._view_rows(viewer, request, "ui_follow_calls", repeats=True)
        view = _View(listing=listing, template="call_rows.html", describe=describe, variant=variant)
        return await self._respond(view, caller, viewer, request)

    async def follow_deliveries(self, request: Request, viewer: Viewer) -> Response:
        query = read_query(request, DeliveryListQuery)
        caller = self._view_rows(viewer, request, "ui_follow_deliveries", repeats=True)
        await self._require_session_of_call(viewer, caller, query.call_id)
        filters = list_filters(query)
        variant = self._shows_owner(viewer), viewer.client_session_id is None, tuple(filters.items())

        def describe(shown: ListedDeliveries) -> Mapping[str, Any]:
            return {
                "deliveries": shown.deliveries,
                "latest": shown.latest,
                "now": self._context.clock.now(),
                "paused_until": None,
                "filters": filters,
                **_link_older(self._find_path(viewer, "/deliveries"), filters, shown.older),
                "shows_owner": variant[0],
                "links_webhooks": variant[1],
            }

        listing = DeliveryListing(delivery_filter=query.to_filter(), limit=LIVE_PAGE_SIZE)
        view = _View(listing=listing, template="delivery_rows.html", describe=describe, variant=variant)
        return await self._respond(view, caller, viewer, request)

    async def follow_session(self, request: Request, viewer: Viewer) -> Response:
        name = require_session_name(viewer, request.query_params.get("client_session_id", ""))
        caller = self._view_rows(viewer, request, "ui_follow_session", repeats=True)
        variant = (self._shows_owner(viewer),)

        principal = "" if caller.operator is None or caller.sees_all_principals else caller.principal
        path = f"{self._renderer.find_path(viewer)}{session_path(name, principal)}"

        def describe(shown: SessionContent) -> Mapping[str, Any]:
            values = describe_session(
                name, shown.calls, shown.counts, now=self._context.clock.now(), caller=caller, shows_owner=variant[0]
            )
            return {**values, "older": link_older_session_calls(path, shown.older), "newest": None}

        listing = SessionListing(client_session_id=name, limit=LIVE_PAGE_SIZE)
        view = _View(listing=listing, template="session_state.html", describe=describe, variant=variant)
        return await self._respond(view, caller, viewer, request)

    async def _respond(self, view: _View[Shown], caller: Caller, viewer: Viewer, request: Request) -> Response:
        if request.method == "HEAD":  # a stream without a body would stay open, and count as one
            return Response(headers=_HEADERS, media_type=EVENT_STREAM)
        live, path = self._services.live_lists, self._renderer.find_path(viewer)
        seconds = STREAM_SECONDS_MIN + next(self._numbers) % STREAM_SECONDS_SPREAD
        contents = live.follow_list(caller, view.listing, seconds=seconds, portal_link_id=viewer.portal_link_id)
        try:
            await anext(contents, None)  # the first value is None, or there is none at a shutdown
        except QuotaExceeded:
            shown = await live.read_list(caller, view.listing)
            body = _write_retry(LIMITED_RETRY_MILLISECONDS) + self._render(view, path, shown)
            return Response(body, headers=_HEADERS, media_type=EVENT_STREAM)
        frames = self._write_frames(view, path, contents, self._checks.open_check(request, viewer))
        return LiveResponse(contents, frames, live, caller)

    async def _write_frames(
        self, view: _View[Shown], path: str, contents: AsyncGenerator[LiveContent[Shown] | None], check: ViewerCheck
    ) -> AsyncGenerator[bytes]:
        yield _write_retry(RETRY_MILLISECONDS)
        async for content in contents:
            if not await check.is_admitted(shows_rows=content is not None):
                return
            yield b": still here\n\n" if content is None else self._get_frame(view, path, content)

    def _get_frame(self, view: _View[Shown], path: str, content: LiveContent[Shown]) -> bytes:
        key = (path, *view.variant)
        return self._frames.get_frame(content, key, lambda: self._render(view, path, content.shown))

    def _render(self, view: _View[Shown], path: str, shown: Shown) -> bytes:
        """`path` is what the links begin with: viewers of a portal link have their own."""
        return _write_event("rows", self._renderer.render_fragment(view.template, path=path, **view.describe(shown)))


def _link_older(path: str, filters: Mapping[str, str], cursor: str | None) -> Mapping[str, str | None]:
    """The links below the rows. A live list shows the newest page."""
    return {"older": None if cursor is None else with_query(path, {**filters, "cursor": cursor}), "newest": None}


class LiveResponse(StreamingResponse):
    """Closes the generator of contents at the end, also if the browser disconnects during a write."""

    def __init__(
        self, contents: AsyncGenerator[Any], frames: AsyncGenerator[bytes], live: LiveLists, caller: Caller
    ) -> None:
        self._contents = contents
        self._frames = frames
        self._live = live
        self._caller = caller
        super().__init__(frames, headers=_HEADERS, media_type=EVENT_STREAM)

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._contents), aclosing(self._frames):
            await self._live.measure_viewer(self._caller, super().stream_response(send))


def _write_retry(milliseconds: int) -> bytes:
    return b"retry: %d\n\n" % milliseconds


def _write_event(name: str, text: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"event: {name}\n{lines}\n".encode()
