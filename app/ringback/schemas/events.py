"""Events in the form that polls, resumes and callbacks share: an MCP EventOccurrence (mcp-events §3)."""

from typing import Any, Final, Self

from pydantic import Field

from ringback.domain.call import Call
from ringback.domain.cursor import EventTime, Page, encode_event_time, encode_log_position
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter
from ringback.domain.ids import CallId
from ringback.schemas.calls import CallView
from ringback.schemas.fields import (
    OWNER_DESCRIPTION,
    PAGE_SIZE_DEFAULT,
    Cursor,
    EventTypeName,
    Id,
    Instant,
    Label,
    OmittedIfNone,
    PageSize,
    PrincipalQueryParams,
    RequestBody,
    ResponseBody,
    StrictBool,
    WaitSeconds,
)
from ringback.services.calls.resume import ResumedCall
from ringback.services.events.events import EventPage
from ringback.signing.resume_token import TOKEN_LENGTH_MAX

OLDEST_EVENT_TIME: Final = EventTime(0, "", 0)
"""Before every event."""


class EventQuery(PrincipalQueryParams):
    cursor: Cursor | None = Field(
        default=None, description="The cursor of the last response. Without it, the oldest event comes first."
    )
    name: EventTypeName | None = None
    call_id: Id | None = None
    client_session_id: Label | None = None
    correlation_id: Label | None = None

    def to_filter(self) -> EventFilter:
        return EventFilter(
            name=self.name,
            call_id=CallId(self.call_id) if self.call_id else None,
            client_session_id=self.client_session_id,
            correlation_id=self.correlation_id,
        )


class EventStreamQuery(EventQuery):
    last_event_id: Cursor | None = Field(
        default=None,
        alias="lastEventId",
        description="The same as the header `Last-Event-ID`, which some EventSource polyfills cannot send when they reconnect.",
    )


class EventListQuery(EventQuery):
    limit: PageSize = PAGE_SIZE_DEFAULT
    wait_seconds: WaitSeconds = Field(
        default=0.0,
        description="How long the response waits for the first event, in seconds; no longer than the service's maximum (45 by "
        "default).",
    )


class ResumeTokenBody(RequestBody):
    """Whether the fresh token replaces all others."""

    revoke_older: StrictBool = Field(default=False, description="Revoke every token that was issued before this one.")


class ResumeTokenView(ResponseBody):
    resume_token: str


class ResumeBody(RequestBody):
    """A resume token from a callback or from the response to a new call."""

    resume_token: str = Field(min_length=1, max_length=TOKEN_LENGTH_MAX)
    wait_seconds: WaitSeconds = Field(
        default=0.0,
        strict=True,
        description="How long the response waits for the end of the call, in seconds; no longer than the service's maximum "
        "(45 by default).",
    )


class EventView(ResponseBody):
    """An event of a call, of a webhook or of an upstream, or one that a client published."""

    event_id: str = Field(serialization_alias="eventId")
    owner: OmittedIfNone[str] = Field(default=None, serialization_alias="principal", description=OWNER_DESCRIPTION)
    name: str
    timestamp: Instant
    cursor: str = Field(description="The event's place in the log. Poll with it to get the events after this one.")
    data: dict[str, Any] = Field(
        description="As in the callback of this event, without the members for its receiver. An event that was erased on "
        "request has `erased: true`, and nothing that came from the client or the upstream."
    )

    @classmethod
    def from_event(cls, event: Event, *, shows_owner: bool = False) -> Self:
        return cls(
            event_id=event.id,
            owner=event.principal if shows_owner else None,
            name=event.name,
            timestamp=event.timestamp,
            cursor=encode_log_position(event.position),
            data=dict(event.data),
        )


class EventPageView(ResponseBody):
    events: list[EventView]
    cursor: str = Field(description="Poll with it to get the events after this page.")
    truncated: bool = Field(
        description="Whether events after your cursor are missing: retention deleted them, or a restored backup "
        "does not hold them."
    )
    has_more: bool = Field(
        description="Whether the log goes on after this page; poll again at once with `cursor`. With a filter that few events "
        "match, a page can be empty although the log goes on, because one request reads a bounded number of events."
    )

    @classmethod
    def from_page(cls, page: EventPage, *, shows_owner: bool = False) -> Self:
        return cls(
            events=[EventView.from_event(event, shows_owner=shows_owner) for event in page.events],
            cursor=page.cursor,
            truncated=page.is_truncated,
            has_more=page.has_more,
        )

    @classmethod
    def from_latest(cls, page: Page[Event, EventTime]) -> Self:
        """A page of the events of all principals. Its cursor leads to older events; after the last page it stays at the end."""
        return cls(
            events=[EventView.from_event(event, shows_owner=True) for event in page],
            cursor=encode_event_time(page.next_position or OLDEST_EVENT_TIME),
            truncated=False,
            has_more=page.next_position is not None,
        )


class ResumedView(ResponseBody):
    """The state of the call, and its events since the token was issued."""

    call: CallView
    events: list[EventView] = Field(description="The call's events since the token was issued.")
    truncated: bool = Field(
        description="Whether the token belongs to an event log that a restored backup has replaced. Then `events` holds all of "
        "the call's events."
    )
    resume_token: str = Field(description="A fresh token, placed after these events.")
    result: OmittedIfNone[dict[str, Any]] = Field(default=None, description="The CallToolResult, if the call has one.")

    @classmethod
    def from_resumed(cls, resumed: ResumedCall) -> Self:
        call: Call = resumed.call
        return cls(
            call=CallView.from_call(call),
            events=[EventView.from_event(event) for event in resumed.events],
            truncated=resumed.is_truncated,
            resume_token=resumed.resume_token,
        )
