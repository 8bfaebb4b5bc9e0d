"""Where the events of a server are stored: what `Events` needs of it."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from ringback.extension.events.event_types import DeclaredEventTypes
from ringback.extension.events.principals import EventCaller
from ringback.protocol.mcp_events.endpoint import EventEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class EmittedEvent:
    """An event that the author emits, with valid data."""

    name: str
    data: Mapping[str, Any] = field(repr=False)
    principal: str | None
    """Who may see it; None for everybody."""
    event_id: str | None
    occurred_at: datetime | None


class OpenEvents(Protocol):
    """The log while the server runs."""

    @property
    def endpoint(self) -> EventEndpoint[EventCaller]: ...

    async def record_event(self, event: EmittedEvent) -> str:
        """Store the event, so that nothing loses it, and return its eventId."""
        ...


class EventLog(Protocol):
    """Where the events of a server are stored."""

    def open(self, types: DeclaredEventTypes) -> AbstractAsyncContextManager[OpenEvents]: ...
