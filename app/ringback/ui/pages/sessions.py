"""The list of client sessions, and the page of one: its calls as a chart and as a table."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.domain.call import LABEL_LENGTH_MAX
from ringback.domain.call_histories import CallMarks
from ringback.domain.cursor import CursorList, decode_id_cursor, encode_next_cursor
from ringback.domain.errors import NotFound
from ringback.domain.insights import LISTED_CALLS_COUNTED_MAX, SessionCounts
from ringback.domain.principal import Caller
from ringback.ui.call_filters import read_principal
from ringback.ui.charts.session_charts import draw_session
from ringback.ui.formats import session_path
from ringback.ui.page_handlers import PageHandlers
from ringback.ui.page_routes import PageRoutes
from ringback.ui.query_parameters import require_known_filters, with_query
from ringback.ui.viewer import Viewer

SESSION_PAGE_SIZE = 50


class SessionPages(PageHandlers):
    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [
            pages.page("/sessions", self.list_sessions),
            pages.page("/session", self.show_session, in_session_portal=True),
            pages.page("/sessions/{client_session_id:path}", self.show_session, in_session_portal=True),
        ]

    async def list_sessions(self, request: Request, viewer: Viewer) -> Response:
        require_known_filters(request.query_params, ())
        cursor = request.query_params.get("cursor")
        principal = read_principal(request.query_params) if viewer.is_operator else ""
        caller = self._view_rows(viewer, request, "ui_list_sessions")
        position = decode_id_cursor(CursorList.SESSIONS, cursor)
        page = await self._services.insights.list_sessions(caller, position=position, limit=SESSION_PAGE_SIZE)
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
            older=with_query(self._find_path(viewer, "/sessions"), link) if older else None,
        )

    async def show_session(self, request: Request, viewer: Viewer) -> Response:
        ui_path = self._renderer.find_path(viewer)
        given = request.path_params.get("client_session_id") or request.query_params.get("client_session_id", "")
        name = require_session_name(viewer, given)
        principal = read_principal(request.query_params) if viewer.is_operator else ""
        caller = self._view_rows(viewer, request, "ui_read_session")
        cursor = request.query_params.get("cursor")
        position = decode_id_cursor(CursorList.CALLS, cursor)
        page = await self._services.call_histories.list_marks(caller, name, position=position, limit=SESSION_PAGE_SIZE)
        counts = None
        if page and not caller.sees_all_principals:
            counts = (await self._services.insights.read_session(caller, name, position=None, limit=1)).counts
        older = encode_next_cursor(CursorList.CALLS, page)
        path = f"{ui_path}{session_path(name, principal)}"
        is_shown_owner = self._shows_owner(viewer)
        live = {"client_session_id": name, "principal": principal}
        return self._renderer.render_page(
            "session.html",
            viewer,
            title=f"Session {name}",
            section="Sessions",
            newest=None if cursor is None else path,
            older=link_older_session_calls(path, older),
            live_path=with_query(f"{ui_path}/session/live", live) if cursor is None else None,
            **describe_session(
                name, page, counts, now=self._context.clock.now(), caller=caller, shows_owner=is_shown_owner
            ),
        )


def link_older_session_calls(path: str, cursor: str | None) -> str | None:
    """The next page of the calls of the session at `path`; None without a cursor."""
    return None if cursor is None else f"{path}{'&' if '?' in path else '?'}{urlencode({'cursor': cursor})}"


def require_session_name(viewer: Viewer, name: str) -> str:
    """Raises `NotFound` for a name that no client session has, and for a session that the viewer may not see."""
    viewer.require_client_session(name)
    if not (0 < len(name) <= LABEL_LENGTH_MAX and name.isprintable()):
        raise NotFound("No client session has this name.")
    return name


def describe_session(
    name: str,
    calls: Sequence[CallMarks],
    counts: SessionCounts | None,
    *,
    now: datetime,
    caller: Caller,
    shows_owner: bool,
) -> dict[str, Any]:
    """The values of `session_state.html`. `calls`: newest first."""
    shown = list(reversed(calls))
    return {
        "client_session_id": name,
        "calls": shown,
        "numbers": counts,
        "drawing": draw_session(shown, now=now),
        "shows_owner": caller.sees_all_principals and shows_owner,
        "is_operator": caller.is_operator,
    }
