"""Requests and responses about events that clients publish, and the types of events besides Ringback's own."""

from typing import Annotated, Any, Self

from pydantic import FailFast, Field

from ringback.domain.event_types import OWN_NAME_LENGTH_MAX, PUBLISHED_NAME_PATTERN, EventType
from ringback.schemas.fields import (
    PRINTABLE_ASCII_WORD,
    Description,
    InstantWithOffset,
    Label,
    OmittedIfNone,
    RequestBody,
    ResponseBody,
)
from ringback.services.events.event_publishing import BATCH_SIZE_MAX, PublishedEvent, PublishedResult
from ringback.services.events.event_types import EventTypeDeclaration

PUBLISHED_ID_LENGTH_MAX = 128
"""Characters of an id: it is a header of callbacks."""

PublishedName = Annotated[
    str, Field(max_length=OWN_NAME_LENGTH_MAX, json_schema_extra={"pattern": PUBLISHED_NAME_PATTERN})
]
"""`services.events.event_types.require_publishable` checks the pattern: its error says the rules in words."""


class PublishEventBody(RequestBody):
    """An event of your own."""

    name: PublishedName = Field(
        description="Lower-case words with dots. Names that begin with `call.`, `upstream.`, `webhook.`, `ringback.` or `mcp.` "
        "are not free. The first event of a name declares its type."
    )
    data: dict[str, Any] = Field(description="What happened: at most 64 KiB of JSON.")
    id: str | None = Field(
        default=None,
        min_length=1,
        max_length=PUBLISHED_ID_LENGTH_MAX,
        pattern=PRINTABLE_ASCII_WORD,
        description="Your own id of the event, its `eventId` for every reader. The same id again changes nothing.",
    )
    timestamp: InstantWithOffset | None = Field(default=None, description="When it happened. Default: now.")
    upstream: Label | None = Field(default=None, description="The MCP server that the event is about.")
    client_session_id: Label | None = None
    correlation_id: Label | None = None

    def to_event(self) -> PublishedEvent:
        return PublishedEvent(**self.to_arguments())


class PublishEventsBody(RequestBody):
    """Several events of your own, in the order in which they happened."""

    events: Annotated[list[PublishEventBody], FailFast()] = Field(min_length=1, max_length=BATCH_SIZE_MAX)


class PublishedEventView(ResponseBody):
    """The place of a published event: its id, and whether it is new."""

    event_id: str = Field(serialization_alias="eventId")
    created: bool = Field(description="Whether this request added it. false: the log had an event of this id.")

    @classmethod
    def from_result(cls, result: PublishedResult) -> Self:
        return cls(event_id=result.event_id, created=result.created)


class PublishedEventsView(ResponseBody):
    events: list[PublishedEventView] = Field(description="In the order of the request.")


class DeclareEventTypeBody(RequestBody):
    """What MCP clients read about a type of events that you publish."""

    description: Description | None = Field(
        default=None, description="For a model: what happens, and when to subscribe."
    )
    payload_schema: dict[str, Any] | None = Field(
        default=None,
        description="A JSON Schema of `data`, against which published events are checked. `format` and `unevaluated*` are not "
        "checked, and neither is data that takes too many steps.",
    )

    def to_declaration(self, name: str) -> EventTypeDeclaration:
        return EventTypeDeclaration(name=name, **self.to_arguments())


class EventTypeView(ResponseBody):
    """A type of events besides Ringback's own."""

    name: str
    upstream: OmittedIfNone[str] = Field(
        default=None, description="The upstream that offers it. Absent for your own types."
    )
    description: str
    input_schema: dict[str, Any] = Field(description="A JSON Schema of the arguments of an MCP subscription.")
    payload_schema: dict[str, Any] = Field(description="A JSON Schema of `data`.")
    warning: OmittedIfNone[str] = Field(
        default=None,
        description="In the response to a declaration: the schema has changed otherwise than by addition, and where.",
    )

    @classmethod
    def from_type(cls, event_type: EventType, *, warning: str | None = None) -> Self:
        return cls(
            name=event_type.name,
            upstream=event_type.upstream,
            description=event_type.description,
            input_schema=dict(event_type.input_schema),
            payload_schema=dict(event_type.payload_schema),
            warning=warning,
        )


class EventTypesView(ResponseBody):
    event_types: list[EventTypeView]
