"""The list of calls, and the page of one call."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.domain import jsontext
from ringback.domain.call import Call, CallPhase, CallStatus
from ringback.domain.call_histories import CallHistory
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.cursor import CursorList, decode_id_cursor, encode_next_cursor
from ringback.domain.errors import ContentUnreadable, InvalidRequest, ResultNotReady
from ringback.domain.ids import is_well_formed_id
from ringback.domain.principal import Caller, Scope
from ringback.domain.upstream_rows import UpstreamIntake
from ringback.ui.call_filters import (
    FAILURES,
    START_CHOICES,
    CallQuery,
    is_id_prefix,
    keep_refused_fields,
    list_choices,
    read_call_query,
)
from ringback.ui.charts.timelines import describe_state, draw_timeline, list_entries, name_receiver
from ringback.ui.contents import READ_BYTES_MAX, ShownContent, show_json, show_value
from ringback.ui.notices import find_notice
from ringback.ui.page_handlers import PageHandlers
from ringback.ui.page_routes import Form, PageRoutes
from ringback.ui.query_parameters import with_query
from ringback.ui.redirects import redirect
from ringback.ui.rendering import PAGE_HEADERS
from ringback.ui.viewer import Viewer

PAGE_SIZE = 50
SETTLED_AFTER: Final = timedelta(minutes=10)
"""A page refreshes itself while the call or a callback is open, and so long after its end: the client may return."""
GROWTH_SECONDS: Final = 10
"""The drawing of a call that is open ends now, so a page that is open gets a new one so often."""
RECEIVERS_SHOWN_MAX: Final = 10
"""Webhooks that an open call names as receivers of its end."""
REASON_LENGTH_MAX: Final = 2_000
VERSION_DIGITS: Final = 16


class CallPages(PageHandlers):
    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [
            pages.page("/calls", self.list_calls, in_session_portal=True),
            pages.page("/calls/{call_id}", self.show_call, in_session_portal=True),
            pages.page("/calls/{call_id}/state", self.show_state, in_session_portal=True),
            pages.action("/calls/{call_id}/cancel", self.cancel_call),
        ]

    async def list_calls(self, request: Request, viewer: Viewer) -> Response:
        search = request.query_params.get("q", "").strip()
        if search:
            return redirect(f"{viewer.pages_path}{_search_path(search)}")
        try:
            query = read_call_query(request.query_params, viewer)
        except InvalidRequest as refused:
            return self._render_list(viewer, keep_refused_fields(request.query_params, viewer), problem=refused.detail)
        caller = self._view_rows(viewer, request, "ui_list_calls")
        cursor = request.query_params.get("cursor")
        position = decode_id_cursor(CursorList.CALLS, cursor)
        page = await self._services.calls.list_calls(caller, query.call_filter, position=position, limit=PAGE_SIZE)
        path = self._find_path(viewer, "/calls")
        return self._render_list(
            viewer,
            query,
            calls=page,
            older=link_older_calls(path, query, encode_next_cursor(CursorList.CALLS, page)),
            newest=None if cursor is None else f"{path}{query.link()}",
        )

    def _render_list(
        self,
        viewer: Viewer,
        query: CallQuery,
        *,
        calls: Sequence[Call] = (),
        older: str | None = None,
        newest: str | None = None,
        problem: str | None = None,
    ) -> Response:
        """`problem`: why the filter was refused. The page then has the form and no rows."""
        return self._renderer.render_page(
            "calls.html",
            viewer,
            title="Calls",
            status_code=HTTPStatus.OK if problem is None else HTTPStatus.UNPROCESSABLE_ENTITY,
            problem=problem,
            calls=calls,
            query=query,
            is_filtered=query.is_filtered,
            shows_owner=self._shows_owner(viewer),
            links_upstreams=viewer.client_session_id is None,
            statuses=list_choices(CallStatus, "Any status"),
            outcomes=[*list_choices(CallOutcome, "Any outcome"), (FAILURES, "any failure")],
            starts=START_CHOICES,
            older=older,
            newest=newest,
        )

    async def show_call(self, request: Request, viewer: Viewer) -> Response:
        caller, history = await self._read_history(request, viewer, operation="ui_read_call")
        call = history.call
        return self._renderer.render_page(
            "call.html",
            viewer,
            title=f"Call of {call.tool}",
            section="Calls",
            done=find_notice(request),
            arguments=show_value(await self._services.call_histories.read_arguments(caller, call.id)),
            result=await self._read_result(caller, call),
            **await self._state_values(history, viewer),
        )

    async def show_state(self, request: Request, viewer: Viewer) -> Response:
        """The part of the page that changes. The script reloads the page once the call has ended."""
        _, history = await self._read_history(request, viewer, operation="ui_refresh_call", repeats=True)
        if request.query_params.get("version") == _compute_version(history, self._context.clock.now()):
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=PAGE_HEADERS)
        response = self._renderer.render_page(
            "call_state.html", viewer, title="", **await self._state_values(history, viewer)
        )
        if history.call.is_final and request.query_params.get("status") != history.call.status:
            response.headers["HX-Refresh"] = "true"
        return response

    async def cancel_call(self, request: Request, viewer: Viewer, form: Form) -> Response:
        del form
        call_id = request.path_params["call_id"]
        caller = await self._act_for_owner(viewer, call_id, "ui_cancel_call")
        call = await self._services.calls.cancel_call(caller, call_id)
        return redirect(with_query(f"/calls/{call.id}", {"done": "call-cancelled"}))

    async def _read_history(
        self, request: Request, viewer: Viewer, *, operation: str, repeats: bool = False
    ) -> tuple[Caller, CallHistory]:
        call_id = request.path_params["call_id"]
        caller = await self._act_for_owner(viewer, call_id, operation, repeats=repeats)
        history = await self._services.call_histories.read_history(caller, call_id)
        viewer.require_client_session(history.call.client_session_id)
        return caller, history

    async def _is_paused(self, call: Call) -> bool:
        """Whether an operator has paused the upstream of a call that waits."""
        if call.is_final or call.phase is not CallPhase.QUEUED:
            return False
        intakes = await self._services.upstream_controls.read_intakes()
        return intakes.get(call.upstream) is UpstreamIntake.PAUSED

    async def _state_values(self, history: CallHistory, viewer: Viewer) -> dict[str, Any]:
        now = self._context.clock.now()
        return {
            "history": history,
            "state_version": _compute_version(history, now),
            "call": history.call,
            "state_text": describe_state(history.call, is_paused=await self._is_paused(history.call)),
            "reason": _find_reason(history.call),
            "entries": list_entries(history),
            "receivers": [
                (webhook, name_receiver(webhook)) for webhook in history.awaiting_webhooks[:RECEIVERS_SHOWN_MAX]
            ],
            "drawing": draw_timeline(history, now=now),
            "may_cancel": viewer.may(Scope.CALLS) and not history.call.is_final,
            "may_answer": viewer.may(Scope.CALLS),
            "is_refreshed": _may_change(history, now - SETTLED_AFTER),
            "refresh_seconds": 2 if not history.call.is_final else 5,
        }

    async def _read_result(self, caller: Caller, call: Call) -> ShownContent | None:
        """None without a result, and for one that is too long for a page."""
        if call.result_bytes is None or call.result_bytes > READ_BYTES_MAX:
            return None
        try:
            _, result = await self._services.calls.get_result(caller, call.id)
        except (ResultNotReady, ContentUnreadable):
            return None
        return show_json(result)


def _search_path(search: str) -> str:
    """The call of this id, the calls whose ids begin so, or what else the text names."""
    if is_well_formed_id("call", search):
        return f"/calls/{search}"
    if is_id_prefix(search):
        return with_query("/calls", {"id_prefix": search})
    return with_query("/lookup", {"q": search})


def link_older_calls(path: str, query: CallQuery, cursor: str | None) -> str | None:
    """The next page of the list at `path`; None without a cursor."""
    return None if cursor is None else f"{path}{query.link(cursor=cursor)}"


def _find_reason(call: Call) -> str | None:
    """What is stored about the failure, if it says more than the outcome."""
    message = (call.error or {}).get("message")
    return None if not message or call.outcome is CallOutcome.CANCELLED else str(message)[:REASON_LENGTH_MAX]


def _compute_version(history: CallHistory, now: datetime) -> str:
    """It changes with what the page shows, so a refresh of a page that shows it all costs one read.

    Also when the page is to ask no more: the answer is then a page without a refresh.
    """
    is_open = any(end is None for end in _list_ends(history))
    deliveries = [(each.delivery.state, each.delivery.attempts, len(each.attempts)) for each in history.deliveries]
    shown = [
        history.call.updated_at.isoformat(),
        history.call.phase,
        history.events[-1].id if history.events else "",
        deliveries,
        history.resume_count,
        (now - history.call.created_at) // timedelta(seconds=GROWTH_SECONDS) if is_open else "",
        _may_change(history, now - SETTLED_AFTER),
        [webhook.id for webhook in history.awaiting_webhooks],
    ]
    return jsontext.sha256(jsontext.dumps(shown))[:VERSION_DIGITS]


def _may_change(history: CallHistory, settled_since: datetime) -> bool:
    """Whether the call or a callback is open, or ended a moment ago, so that the client may return."""
    return any(end is None or end > settled_since for end in _list_ends(history))


def _list_ends(history: CallHistory) -> Sequence[datetime | None]:
    """Of the call and of its callbacks; None for what is open."""
    return [history.call.finished_at, *(each.delivery.finished_at for each in history.deliveries)]
