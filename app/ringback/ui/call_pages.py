"""The list of calls."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.domain.call_rows import CallFilter
from ringback.domain.cursor import CursorList, decode_id_cursor
from ringback.ui.access import view_rows
from ringback.ui.context import UiContext
from ringback.ui.page_routes import PageRoutes
from ringback.ui.rendering import Renderer
from ringback.ui.viewer import Viewer

PAGE_SIZE = 50


class CallPages:
    def __init__(self, context: UiContext, renderer: Renderer) -> None:
        self._context = context
        self._renderer = renderer

    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [pages.page("/calls", self.list_calls, in_session_portal=True)]

    async def list_calls(self, request: Request, viewer: Viewer) -> Response:
        services = self._context.services
        caller = view_rows(services.operators, viewer, request, operation="ui_list_calls")
        position = decode_id_cursor(CursorList.CALLS, request.query_params.get("cursor"))
        call_filter = CallFilter(client_session_id=viewer.client_session_id)
        page = await services.calls.list_calls(caller, call_filter, position=position, limit=PAGE_SIZE)
        return self._renderer.render_page("calls.html", viewer, title="Calls", calls=page)
