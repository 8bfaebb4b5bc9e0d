"""Models of events that clients publish, and of the types of events besides Ringback's own."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from ringback.client.models import ClientModel


class PublishedEvent(ClientModel):
    """The result of publishing one event."""

    event_id: str = Field(alias="eventId")
    created: bool
    """False if the log had an event of this id."""


class PublishedEvents(ClientModel):
    events: tuple[PublishedEvent, ...]


class EventType(ClientModel):
    """A type of events besides Ringback's own: one that you publish, or one of an upstream."""

    name: str
    upstream: str | None = None
    """The upstream that offers it; None for your own types."""
    description: str
    input_schema: Mapping[str, Any] = Field(repr=False)
    payload_schema: Mapping[str, Any] = Field(repr=False)
    warning: str | None = None
    """After a declaration: the schema has changed otherwise than by addition, and where."""


class EventTypeList(ClientModel):
    event_types: tuple[EventType, ...]
