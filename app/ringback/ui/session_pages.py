"""The page of one client session: its calls as a chart and as a table."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.api.responses import encode_next_cursor
from ringback.domain.call import LABEL_LENGTH_MAX
from ringback.domain.cursor import CursorList, decode_id_cursor
from ringback.domain.errors import NotFound
from ringback.ui.access import view_rows
from ringback.ui.context import UiContext
from ringback.ui.page_routes import PageRoutes
from ringback.ui.rendering import Renderer
from ringback.ui.session_charts import draw_session
from ringback.ui.viewer import Viewer

SESSION_PAGE_SIZE = 50


class SessionPages:
    def __init__(self, context: UiContext, renderer: Renderer) -> None:
        self._context = context
        self._renderer = renderer

    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [pages.page("/sessions/{client_session_id:path}", self.show_session, in_session_portal=True)]

    async def show_session(self, request: Request, viewer: Viewer) -> Response:
        services, session_id = self._context.services, request.path_params["client_session_id"]
        viewer.require_client_session(session_id)
        if not (0 < len(session_id) <= LABEL_LENGTH_MAX and session_id.isprintable()):
            raise NotFound("No client session has this name.")
        caller = view_rows(services.operators, viewer, request, operation="ui_read_session")
        cursor = request.query_params.get("cursor")
        position = decode_id_cursor(CursorList.CALLS, cursor)
        page = await services.call_histories.list_marks(caller, session_id, position=position, limit=SESSION_PAGE_SIZE)
        calls = list(reversed(list(page)))
        return self._renderer.render_page(
            "session.html",
            viewer,
            title=f"Session {session_id}",
            client_session_id=session_id,
            calls=calls,
            drawing=draw_session(calls, now=self._context.clock.now()),
            is_first=cursor is None,
            next_cursor=encode_next_cursor(CursorList.CALLS, page),
        )
