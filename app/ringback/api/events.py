"""Events over REST: the log, polled and streamed."""

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
    Cursor | None, Header(alias="Last-Event-ID", description="Where a stream broke off; goes over `cursor`.")
]


@router.get(
    "",
    responses=problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidRequest, errors.InvalidCursor),
)
async def poll_events(
    query: Annotated[EventListQuery, Query()], behind: ServicesDep, caller: CallerDep
) -> EventPageView:
    """Read your events, oldest first. A cursor whose events are gone gives `truncated: true`, never an error."""
    page = await behind.events.poll_events(
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
            "description": "Server-sent events: `id` is the event's cursor, `event` its name, `data` what a poll shows.",
            "content": {EVENT_STREAM_MEDIA_TYPE: {"schema": {"type": "string"}, "example": examples.STREAM}},
        },
        **problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidRequest, errors.InvalidCursor, errors.QuotaExceeded),
    },
)
async def stream_events(
    query: Annotated[EventStreamQuery, Query()],
    behind: ServicesDep,
    caller: CallerDep,
    last_event_id: LastEventId = None,
) -> Response:
    """Follow your events as they come. Every quarter of an hour the stream ends; come back with `Last-Event-ID`.

    A comment every 15 seconds tells that it lives. An event `truncated` tells that events after your place are no longer kept.
    """
    pages = behind.events.follow_events(caller, query.to_filter(), cursor=last_event_id or query.cursor)
    return EventStreamResponse(await anext(pages), pages)
