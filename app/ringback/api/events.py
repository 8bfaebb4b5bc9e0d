"""Events over REST: the log, polled and streamed."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from ringback.api.auth import Asking
from ringback.api.context import Behind
from ringback.api.guarded_route import GuardedRoute
from ringback.api.problems import GUARDED, documented
from ringback.api.schemas import examples
from ringback.api.schemas.events import EventPageView, EventsQuestion, StreamQuestion
from ringback.api.schemas.fields import Cursor
from ringback.api.server_sent import MEDIA_TYPE, EventStream
from ringback.domain import errors

router = APIRouter(prefix="/v1/events", tags=["events"], route_class=GuardedRoute)

LastEventId = Annotated[
    Cursor | None, Header(alias="Last-Event-ID", description="Where a stream broke off; goes over `cursor`.")
]


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


@router.get(
    "/stream",
    response_class=Response,
    responses={
        200: {
            "description": "Server-sent events: `id` is the event's cursor, `event` its name, `data` what a poll shows.",
            "content": {MEDIA_TYPE: {"schema": {"type": "string"}, "example": examples.STREAM}},
        },
        **documented(*GUARDED, errors.InvalidRequest, errors.InvalidCursor, errors.QuotaExceeded),
    },
)
async def stream_events(
    question: Annotated[StreamQuestion, Query()],
    behind: Behind,
    caller: Asking,
    last_event_id: LastEventId = None,
) -> Response:
    """Follow your events as they come. Every quarter of an hour the stream ends; come back with `Last-Event-ID`.

    A comment every 15 seconds tells that it lives. An event `truncated` tells that events after your place are no longer kept.
    """
    pages = behind.events.follow(caller, question.where(), cursor=last_event_id or question.cursor)
    return EventStream(await anext(pages), pages)
