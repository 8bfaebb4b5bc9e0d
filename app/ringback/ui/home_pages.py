"""The first page: what runs, what is stuck, whose endpoint fails, and charts of the last hours."""

from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ringback.domain.call import CallStatus
from ringback.domain.call_rows import CallFilter
from ringback.domain.webhook import WebhookHealth
from ringback.ui.access import view_rows
from ringback.ui.context import UiContext
from ringback.ui.page_routes import PageRoutes
from ringback.ui.rendering import PAGE_HEADERS, Renderer
from ringback.ui.viewer import Viewer

LISTED_ROWS: Final = 5
"""Of each of the short lists. Links lead to the whole ones."""


class HomePages:
    def __init__(self, context: UiContext, renderer: Renderer) -> None:
        self._context = context
        self._renderer = renderer

    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [pages.page(path, self.show_home, in_session_portal=True) for path in ("", "/")]

    async def show_home(self, request: Request, viewer: Viewer) -> Response:
        if viewer.client_session_id is not None:
            place = f"/ui/sessions/{quote(viewer.client_session_id, safe='')}"
            return RedirectResponse(place, status_code=HTTPStatus.SEE_OTHER, headers=PAGE_HEADERS)
        services = self._context.services
        caller = view_rows(services.operators, viewer, request, operation="ui_home")
        calls = services.calls
        return self._renderer.render_page(
            "home.html",
            viewer,
            title="Overview",
            overview=None,
            newest_calls=await calls.list_calls(caller, CallFilter(), position=None, limit=LISTED_ROWS),
            waiting_calls=await calls.list_calls(
                caller, CallFilter(status=CallStatus.INPUT_REQUIRED), position=None, limit=LISTED_ROWS
            ),
            failed_calls=await calls.list_calls(
                caller, CallFilter(status=CallStatus.FAILED), position=None, limit=LISTED_ROWS
            ),
            failing_webhooks=await services.webhooks.list_webhooks(
                caller, WebhookHealth.FAILING, position=None, limit=LISTED_ROWS
            ),
        )
