"""The list of calls as server-sent events: each has the rows of the first page as HTML, which a script puts into the page.

The HTML is made once for all viewers that see the same rows. A stream ends within a minute or so, and the browser connects
again: so a viewer that has signed out, or whose key was revoked, gets no more.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import count
from typing import Final
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Send

from ringback.services.live_calls import LiveCallPage
from ringback.ui.access import shows_owner, view_rows
from ringback.ui.call_filters import read_call_query
from ringback.ui.context import UiContext
from ringback.ui.page_routes import PageRoutes
from ringback.ui.rendering import PAGE_HEADERS, Renderer
from ringback.ui.viewer import Viewer

LIVE_PAGE_SIZE: Final = 50
STREAM_SECONDS_MIN: Final = 40
STREAM_SECONDS_SPREAD: Final = 20
"""Viewers that connected together do not connect again together."""
RETRY_MILLISECONDS: Final = 1000
_HEADERS: Final = {**PAGE_HEADERS, "X-Accel-Buffering": "no"}
"""nginx would buffer frames."""


class LivePages:
    def __init__(self, context: UiContext, renderer: Renderer) -> None:
        self._context = context
        self._renderer = renderer
        self._numbers = count()
        self._frames: WeakKeyDictionary[LiveCallPage, dict[tuple[bool, bool], bytes]] = WeakKeyDictionary()

    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [pages.page("/calls/live", self.follow_calls, in_session_portal=True)]

    async def follow_calls(self, request: Request, viewer: Viewer) -> Response:
        services = self._context.services
        query = read_call_query(request.query_params, viewer)
        caller = view_rows(services.operators, viewer, request, operation="ui_follow_calls", repeats=True)
        seconds = STREAM_SECONDS_MIN + next(self._numbers) % STREAM_SECONDS_SPREAD
        pages = services.live_calls.follow_list(
            caller, query.call_filter, limit=LIVE_PAGE_SIZE, seconds=seconds, portal_link_id=viewer.portal_link_id
        )
        first = await anext(pages, None)  # at a shutdown there is no page
        frames = self._write_frames(
            first, pages, shows_owner=shows_owner(self._context, viewer), is_filtered=query.is_filtered
        )
        return LiveResponse(pages, frames)

    async def _write_frames(
        self,
        first: LiveCallPage | None,
        pages: AsyncGenerator[LiveCallPage | None],
        *,
        shows_owner: bool,
        is_filtered: bool,
    ) -> AsyncGenerator[bytes]:
        yield b"retry: %d\n\n" % RETRY_MILLISECONDS
        if first is not None:
            yield self._get_frame(first, shows_owner=shows_owner, is_filtered=is_filtered)
        async for page in pages:
            if page is None:
                yield b": still here\n\n"
            else:
                yield self._get_frame(page, shows_owner=shows_owner, is_filtered=is_filtered)

    def _get_frame(self, page: LiveCallPage, *, shows_owner: bool, is_filtered: bool) -> bytes:
        frames = self._frames.setdefault(page, {})
        key = shows_owner, is_filtered
        if key not in frames:
            html = self._renderer.render_fragment(
                "call_rows.html", calls=page.calls, shows_owner=shows_owner, is_filtered=is_filtered, older=None
            )
            frames[key] = _write_event("rows", html)
        return frames[key]


class LiveResponse(StreamingResponse):
    """Closes the generator of pages at the end, also if the browser disconnects during a write."""

    def __init__(self, pages: AsyncGenerator[LiveCallPage | None], frames: AsyncGenerator[bytes]) -> None:
        self._pages = pages
        self._frames = frames
        super().__init__(frames, headers=_HEADERS, media_type="text/event-stream")

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._pages), aclosing(self._frames):
            await super().stream_response(send)


def _write_event(name: str, text: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"event: {name}\n{lines}\n".encode()
