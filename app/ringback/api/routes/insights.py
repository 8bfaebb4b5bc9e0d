"""Insights over REST: what happens hour by hour, what is open now, and client sessions."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from ringback.api.authentication import AuthenticatedRoute
from ringback.api.context import ServicesDep
from ringback.api.operator_access import ListCallerDep
from ringback.api.problems import AUTHENTICATED_ERRORS, problem_responses
from ringback.domain import errors
from ringback.domain.cursor import CursorList, decode_id_cursor, encode_next_cursor
from ringback.domain.principal import ANONYMOUS_PRINCIPAL, Caller, Scope
from ringback.schemas.insights import (
    InsightsQuery,
    InsightsView,
    SessionInsightsView,
    SessionListQuery,
    SessionPageView,
)

router = APIRouter(prefix="/v1", tags=["insights"], route_class=AuthenticatedRoute)


@router.get("/insights", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidRequest))
async def read_insights(
    query: Annotated[InsightsQuery, Query()], services: ServicesDep, caller: ListCallerDep
) -> InsightsView:
    """Read what is open now, and the last hours: calls by outcome, attempts by category, durations and latencies."""
    overview = await services.insights.read_overview(caller, hours=query.hours)
    return InsightsView.from_overview(overview, leaves_out_others=_leaves_out_others(caller))


def _leaves_out_others(caller: Caller) -> bool:
    """Whether an operator sees its own principal only. Without authentication there is no other one."""
    return Scope.ADMIN in caller.scopes and caller.operator is None and caller.principal != ANONYMOUS_PRINCIPAL


@router.get(
    "/sessions", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidRequest, errors.InvalidCursor)
)
async def list_sessions(
    query: Annotated[SessionListQuery, Query()], services: ServicesDep, caller: ListCallerDep
) -> SessionPageView:
    """List your client sessions (`client_session_id` of your calls), that of the newest call first."""
    position = decode_id_cursor(CursorList.SESSIONS, query.cursor)
    page = await services.insights.list_sessions(caller, position=position, limit=query.limit)
    return SessionPageView.from_sessions(
        page, encode_next_cursor(CursorList.SESSIONS, page), shows_owner=caller.is_operator
    )


@router.get(
    "/sessions/{client_session_id:path}",
    responses=problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidRequest, errors.InvalidCursor, errors.NotFound),
)
async def read_session(
    client_session_id: Annotated[str, Path(description="Your name for the session.", examples=["session-7"])],
    query: Annotated[SessionListQuery, Query()],
    services: ServicesDep,
    caller: ListCallerDep,
) -> SessionInsightsView:
    """Read a client session: how its calls ended, and the calls themselves, newest first."""
    position = decode_id_cursor(CursorList.CALLS, query.cursor)
    session = await services.insights.read_session(caller, client_session_id, position=position, limit=query.limit)
    return SessionInsightsView.from_session(
        session, encode_next_cursor(CursorList.CALLS, session.calls), shows_owner=caller.is_operator
    )
