"""Events over REST: poll the event log, or stream it."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep
from ringback.api.event_stream import EVENT_STREAM_MEDIA_TYPE, EventStreamResponse
from ringback.api.problems import AUTHENTICATED_ERRORS, problem_responses
from ringback.domain import errors
from ringback.schemas import examples
from ringback.schemas.events import EventListQuery, EventPageView, EventStreamQuery
from ringback.schemas.fields import Cursor

router = APIRouter(prefix="/v1/events", tags=["events"], route_class=AuthenticatedRoute)

LastEventId = Annotated[
    Cursor | None,
    Header(
        alias="Last-Event-ID", description="The cursor of the last received event. It takes precedence over `cursor`."
    ),
]


@router.get(
    "",
    responses=problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidRequest, errors.InvalidCursor),
)
async def poll_events(
    query: Annotated[EventListQuery, Query()], services: ServicesDep, caller: CallerDep
) -> EventPageView:
    """Read your events, oldest first. If events after the cursor are missing, `truncated` is true; it is never an error."""
    page = await services.events.poll_events(
        caller,
        query.to_filter(),
        cursor=query.cursor,
        limit=query.limit,
        wait_seconds=query.wait_seconds,
    )
    return EventPageView.from_page(page)


@router.get(
    "/stream",
    response_class=Response,
    responses={
        200: {
            "description": "Server-sent events: `id` is the event's cursor, `event` its name, `data` the event as in a poll.",
            "content": {EVENT_STREAM_MEDIA_TYPE: {"schema": {"type": "string"}, "example": examples.STREAM}},
        },
        **problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidRequest, errors.InvalidCursor, errors.QuotaExceeded),
    },
)
async def stream_events(
    query: Annotated[EventStreamQuery, Query()],
    services: ServicesDep,
    caller: CallerDep,
    last_event_id: LastEventId = None,
) -> Response:
    """Stream your events as they are written. The stream ends after 15 minutes; reconnect with `Last-Event-ID`.

    Without events, the stream sends a comment every 15 seconds. A `truncated` event means that events after your cursor are
    missing.
    """
    pages = services.events.follow_events(caller, query.to_filter(), cursor=last_event_id or query.cursor)
    return EventStreamResponse(await anext(pages), pages)
