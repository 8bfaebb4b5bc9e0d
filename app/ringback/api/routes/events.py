"""Events over REST: publish events, poll the event log, or stream it as server-sent events (the HTML standard, §9.2).

retry: 2000                       how long a browser waits before it reconnects, in milliseconds
id: MTpldmVudHM6NDI               the event's cursor; a client sends it as Last-Event-ID
event: call.finished
data: {"eventId": …}              one line of JSON
: still here                      the heartbeat, with an `id` of its own: the cursor up to which no event matches the filters
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Send

from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep
from ringback.api.idempotency_keys import require_own_keys
from ringback.api.operator_access import ListCallerDep, OwnerCallerDep
from ringback.api.problems import AUTHENTICATED_ERRORS, BODY_ERRORS, problem_responses
from ringback.domain import errors
from ringback.schemas import examples
from ringback.schemas.events import EventListQuery, EventPageView, EventStreamQuery, EventView
from ringback.schemas.fields import Cursor
from ringback.schemas.published_events import (
    PublishedEventsView,
    PublishedEventView,
    PublishEventBody,
    PublishEventsBody,
)
from ringback.services.events.event_streams import StreamPage

EVENT_STREAM_MEDIA_TYPE: Final = "text/event-stream"
RETRY_MILLISECONDS: Final = 2000
"""About the duration of a restart."""
TRUNCATED_FRAME: Final = b'event: truncated\ndata: {"truncated":true}\n\n'
"""Events after the client's cursor are missing. The frame has no id, because the client's cursor stays the same."""
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would buffer frames
}

_PUBLISHING_ERRORS: Final = (errors.UnknownUpstream, errors.QuotaExceeded, errors.ShuttingDown)

_ID_ADVICE: Final = "Give each event an `id`. Then the whole request can be repeated."

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
    query: Annotated[EventListQuery, Query()], services: ServicesDep, caller: ListCallerDep
) -> EventPageView:
    """Read your events, oldest first. If events after the cursor are missing, `truncated` is true; it is never an error.

    An operator who reads the events of all principals gets them newest first, and does not wait for more: `cursor` leads to
    older events.
    """
    if caller.sees_all_principals:
        if query.wait_seconds:
            raise errors.InvalidRequest(
                "The events of all principals have no common order to wait in. Name one principal."
            )
        latest = await services.events.list_latest(caller, query.to_filter(), cursor=query.cursor, limit=query.limit)
        return EventPageView.from_latest(latest)
    page = await services.events.poll_events(
        caller,
        query.to_filter(),
        cursor=query.cursor,
        limit=query.limit,
        wait_seconds=query.wait_seconds,
    )
    return EventPageView.from_page(page, shows_owner=caller.is_operator)


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
    caller: OwnerCallerDep,
    last_event_id: LastEventId = None,
) -> Response:
    """Stream your events as they are written. The stream ends after 15 minutes; reconnect with `Last-Event-ID`.

    Without events, the stream sends a comment and a new `id` every 15 seconds, so a reconnect never begins far behind. A
    `truncated` event means that events after your cursor are missing.
    """
    cursor = last_event_id or query.last_event_id or query.cursor
    pages = services.event_streams.follow_log(caller, query.to_filter(), cursor=cursor)
    return EventStreamResponse(await anext(pages), pages)


class EventStreamResponse(StreamingResponse):
    """Streams pages of the event log as fast as the client reads, and closes the generator of pages at the end."""

    def __init__(self, first: StreamPage, pages: AsyncGenerator[StreamPage]) -> None:
        self._pages = pages
        self._frames = _stream_frames(first, pages)
        super().__init__(self._frames, headers=_HEADERS, media_type=EVENT_STREAM_MEDIA_TYPE)

    async def stream_response(self, send: Send) -> None:
        # A client that disconnects during a write leaves both generators open.
        async with aclosing(self._pages), aclosing(self._frames):
            await super().stream_response(send)


async def _stream_frames(first: StreamPage, pages: AsyncGenerator[StreamPage]) -> AsyncGenerator[bytes]:
    yield b"retry: %d\n\n" % RETRY_MILLISECONDS
    yield b"".join(_page_frames(first)) or _heartbeat_frame(first)
    del first
    async for page in pages:
        if page.is_store_unavailable:
            return  # the client reconnects with its cursor
        yield b"".join(_page_frames(page)) or _heartbeat_frame(page)


def _page_frames(page: StreamPage) -> Iterator[bytes]:
    if page.is_truncated:
        yield TRUNCATED_FRAME
    for event in page.events:
        view = EventView.from_event(event)
        yield f"id: {view.cursor}\nevent: {view.name}\ndata: {view.model_dump_json(by_alias=True)}\n\n".encode()


def _heartbeat_frame(page: StreamPage) -> bytes:
    """A frame without data sets the client's last event id and dispatches no event (the HTML standard, §9.2.6)."""
    return f"id: {page.cursor}\n: still here\n\n".encode()


@router.post(
    "",
    status_code=201,
    response_description="The event is in the log.",
    responses={
        200: {"model": PublishedEventView, "description": "The log had an event of this id."},
        **problem_responses(*AUTHENTICATED_ERRORS, *BODY_ERRORS, *_PUBLISHING_ERRORS),
    },
)
async def publish_event(
    body: PublishEventBody, request: Request, response: Response, services: ServicesDep, caller: CallerDep
) -> PublishedEventView:
    """Publish an event of your own to your webhooks, polls and streams. Needs the scope `calls` or `adopt`.

    Send an `id` and repeat the request until it succeeds: the same id again changes nothing.
    """
    require_own_keys(request, [body.id], _ID_ADVICE)
    (published,) = await services.event_publishing.publish_events(caller, [body.to_event()])
    if not published.created:
        response.status_code = 200
    return PublishedEventView.from_result(published)


@router.post(
    "/batch",
    response_description="All events are in the log.",
    responses=problem_responses(*AUTHENTICATED_ERRORS, *BODY_ERRORS, *_PUBLISHING_ERRORS),
)
async def publish_events(
    body: PublishEventsBody, request: Request, services: ServicesDep, caller: CallerDep
) -> PublishedEventsView:
    """Publish up to 100 events of your own, in this order, all or none. Needs the scope `calls` or `adopt`."""
    require_own_keys(request, (event.id for event in body.events), _ID_ADVICE)
    published = await services.event_publishing.publish_events(caller, [event.to_event() for event in body.events])
    return PublishedEventsView(events=[PublishedEventView.from_result(each) for each in published])
