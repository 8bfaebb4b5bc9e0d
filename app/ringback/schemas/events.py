"""Events, in the one form that polls, resumes and callbacks share: an MCP EventOccurrence (mcp-events §3)."""

from typing import Any, Self

from pydantic import Field

from ringback.domain.call import Call
from ringback.domain.cursor import encode_log_position
from ringback.domain.event import Event, EventName
from ringback.domain.event_rows import EventFilter
from ringback.domain.ids import CallId
from ringback.schemas.calls import CallView
from ringback.schemas.fields import (
    PAGE_SIZE_DEFAULT,
    Cursor,
    Id,
    Instant,
    Label,
    OmittedIfNone,
    PageSize,
    QueryParams,
    RequestBody,
    ResponseBody,
    StrictBool,
    WaitSeconds,
)
from ringback.services.events import EventPage
from ringback.services.resume import ResumedCall
from ringback.signing.resume_token import TOKEN_LENGTH_MAX


class EventStreamQuery(QueryParams):
    cursor: Cursor | None = Field(default=None, description="From the last answer; without it, from the oldest event.")
    name: EventName | None = None
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


class EventListQuery(EventStreamQuery):
    limit: PageSize = PAGE_SIZE_DEFAULT
    wait_seconds: WaitSeconds = Field(default=0.0, description="Wait so long for the first event.")


class ResumeTokenBody(RequestBody):
    """Whether a fresh token is to be the only one."""

    revoke_older: StrictBool = Field(default=False, description="Refuse every token that was made before this one.")


class ResumeTokenView(ResponseBody):
    resume_token: str


class ResumeBody(RequestBody):
    """A resume token, as a callback or a started call gave it."""

    resume_token: str = Field(min_length=1, max_length=TOKEN_LENGTH_MAX)
    wait_seconds: WaitSeconds = Field(default=0.0, strict=True, description="Wait so long for the call's end.")


class EventView(ResponseBody):
    """Something that happened to a call, to a webhook or to an upstream."""

    event_id: str = Field(serialization_alias="eventId")
    name: EventName
    timestamp: Instant
    cursor: str = Field(description="The event's own place: poll with it to get what came after.")
    data: dict[str, Any]

    @classmethod
    def from_event(cls, event: Event) -> Self:
        return cls(
            event_id=event.id,
            name=event.name,
            timestamp=event.created_at,
            cursor=encode_log_position(event.position),
            data=dict(event.data),
        )


class EventPageView(ResponseBody):
    events: list[EventView]
    cursor: str = Field(description="Poll with it to get what comes after this page.")
    truncated: bool = Field(
        description="Whether events after the cursor you sent are not here: no longer kept, or lost when a backup was restored."
    )
    has_more: bool = Field(
        description="Whether more of the log waits, to be polled with the cursor at once. With a filter that little matches, "
        "a page may be empty and have more: one request looks at a bounded number of events."
    )

    @classmethod
    def from_page(cls, page: EventPage) -> Self:
        return cls(
            events=[EventView.from_event(event) for event in page.events],
            cursor=page.cursor,
            truncated=page.is_truncated,
            has_more=page.has_more,
        )


class ResumedView(ResponseBody):
    """Where the call stands."""

    call: CallView
    events: list[EventView] = Field(description="The call's events since the token was made.")
    truncated: bool = Field(
        description="Whether the token is of an event log that was lost when a backup was restored. Then `events` are all of "
        "the call's events."
    )
    resume_token: str = Field(description="A fresh token, standing after these events.")
    result: OmittedIfNone[dict[str, Any]] = Field(default=None, description="The CallToolResult, once there is one.")

    @classmethod
    def from_resumed(cls, resumed: ResumedCall) -> Self:
        call: Call = resumed.call
        return cls(
            call=CallView.from_call(call),
            events=[EventView.from_event(event) for event in resumed.events],
            truncated=resumed.is_truncated,
            resume_token=resumed.resume_token,
        )
