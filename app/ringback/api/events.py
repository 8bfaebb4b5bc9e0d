"""Events over REST: the log, polled."""

from typing import Annotated

from fastapi import APIRouter, Query

from ringback.api.auth import Asking
from ringback.api.context import Behind
from ringback.api.guarded_route import GuardedRoute
from ringback.api.problems import GUARDED, documented
from ringback.api.schemas.events import EventPageView, EventsQuestion
from ringback.domain import errors

router = APIRouter(prefix="/v1/events", tags=["events"], route_class=GuardedRoute)


@router.get(
    "",
    responses=documented(*GUARDED, errors.InvalidRequest, errors.InvalidCursor),
)
async def poll_events(question: Annotated[EventsQuestion, Query()], behind: Behind, caller: Asking) -> EventPageView:
    """Read your events, oldest first. A cursor whose events are gone gives `truncated: true`, never an error."""
    page = await behind.events.poll(
        caller,
        question.where(),
        cursor=question.cursor,
        limit=question.limit,
        wait_seconds=question.wait_seconds,
    )
    return EventPageView.of(page)
