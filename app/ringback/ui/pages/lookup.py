"""One box for every id and key: what it names, as links."""

from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.services.lookups import Found, FoundKind
from ringback.ui.formats import session_path
from ringback.ui.page_handlers import PageHandlers
from ringback.ui.page_routes import PageRoutes
from ringback.ui.query_parameters import with_query
from ringback.ui.redirects import redirect
from ringback.ui.viewer import Viewer

_PATHS: Final = {FoundKind.CALL: "/calls/", FoundKind.DELIVERY: "/deliveries/", FoundKind.WEBHOOK: "/webhooks/"}


class LookupPages(PageHandlers):
    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [pages.page("/lookup", self.look_up)]

    async def look_up(self, request: Request, viewer: Viewer) -> Response:
        text = request.query_params.get("q", "")
        result = None
        if text.strip():
            caller = self._view_rows(viewer, request, "ui_look_up")
            result = await self._services.lookups.find(caller, text)
            if len(result.found) == 1:
                return redirect(f"{viewer.pages_path}{_path(result.found[0])}")
        return self._renderer.render_page(
            "lookup.html",
            viewer,
            title="Find",
            text=text,
            tried=() if result is None else result.tried,
            found=() if result is None else [(each, _path(each)) for each in result.found],
        )


def _path(found: Found) -> str:
    """Below the dashboard's path."""
    if found.kind is FoundKind.CORRELATION:
        return with_query("/calls", {"correlation_id": found.id})
    if found.kind is FoundKind.SESSION:
        return session_path(found.id)
    return f"{_PATHS[found.kind]}{quote(found.id, safe='')}"
