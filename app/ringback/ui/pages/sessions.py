"""The list of client sessions, and the page of one: its calls as a chart and as a table."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.api.responses import encode_next_cursor
from ringback.domain.call import LABEL_LENGTH_MAX
from ringback.domain.cursor import CursorList, decode_id_cursor
from ringback.domain.errors import NotFound
from ringback.domain.insights import LISTED_CALLS_COUNTED_MAX
from ringback.ui.access import shows_owner, view_rows
from ringback.ui.call_filters import read_principal
from ringback.ui.charts.session_charts import draw_session
from ringback.ui.context import UiContext
from ringback.ui.formats import quote_segment
from ringback.ui.page_routes import PageRoutes
from ringback.ui.query_parameters import with_query
from ringback.ui.rendering import Renderer
from ringback.ui.viewer import Viewer

SESSION_PAGE_SIZE = 50


class SessionPages:
    def __init__(self, context: UiContext, renderer: Renderer) -> None:
        self._context = context
        self._renderer = renderer

    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [
            pages.page("/sessions", self.list_sessions),
            pages.page("/sessions/{client_session_id:path}", self.show_session, in_session_portal=True),
        ]

    async def list_sessions(self, request: Request, viewer: Viewer) -> Response:
        services, cursor = self._context.services, request.query_params.get("cursor")
        principal = read_principal(request.query_params) if viewer.is_operator else ""
        caller = view_rows(services.operators, viewer, request, operation="ui_list_sessions")
        position = decode_id_cursor(CursorList.SESSIONS, cursor)
        page = await services.insights.list_sessions(caller, position=position, limit=SESSION_PAGE_SIZE)
        older = encode_next_cursor(CursorList.SESSIONS, page)
        link = {"principal": principal, "cursor": older}
        return self._renderer.render_page(
            "sessions.html",
            viewer,
            title="Sessions",
            sessions=page,
            counted_max=LISTED_CALLS_COUNTED_MAX,
            principal=principal,
            is_first=cursor is None,
            older=with_query(f"{self._renderer.ui_path}/sessions", link) if older else None,
        )

    async def show_session(self, request: Request, viewer: Viewer) -> Response:
        services, session_id = self._context.services, request.path_params["client_session_id"]
        viewer.require_client_session(session_id)
        if not (0 < len(session_id) <= LABEL_LENGTH_MAX and session_id.isprintable()):
            raise NotFound("No client session has this name.")
        principal = read_principal(request.query_params) if viewer.is_operator else ""
        caller = view_rows(services.operators, viewer, request, operation="ui_read_session")
        cursor = request.query_params.get("cursor")
        position = decode_id_cursor(CursorList.CALLS, cursor)
        page = await services.call_histories.list_marks(caller, session_id, position=position, limit=SESSION_PAGE_SIZE)
        calls = list(reversed(list(page)))
        numbers = None
        if calls and not caller.sees_all_principals:
            numbers = (await services.insights.read_session(caller, session_id, position=None, limit=1)).counts
        older = encode_next_cursor(CursorList.CALLS, page)
        path = f"{self._renderer.ui_path}/sessions/{quote_segment(session_id)}"
        return self._renderer.render_page(
            "session.html",
            viewer,
            title=f"Session {session_id}",
            client_session_id=session_id,
            calls=calls,
            shows_owner=caller.sees_all_principals and shows_owner(self._context, viewer),
            drawing=draw_session(calls, now=self._context.clock.now()),
            numbers=numbers,
            newest=None if cursor is None else with_query(path, {"principal": principal}),
            older=with_query(path, {"principal": principal, "cursor": older}) if older else None,
        )
