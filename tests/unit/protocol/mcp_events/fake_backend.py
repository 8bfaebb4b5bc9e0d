"""A server of events whose answers a test sets, and which notes what reaches it."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from ringback.protocol.mcp_events.backend import (
    Interest,
    OccurrencePage,
    SubscriptionGrant,
    SubscriptionKey,
    SubscriptionRequest,
)
from ringback.protocol.mcp_events.descriptors import EventDescriptor
from ringback.protocol.mcp_events.endpoint import EndpointPolicy, EventEndpoint
from ringback.protocol.mcp_events.errors import EventError
from ringback.protocol.mcp_events.names import DeliveryMode
from ringback.protocol.mcp_events.occurrence import EventOccurrence

Caller = str | None
"""The principal; None for an unauthenticated caller."""
NOW: Final = datetime(2026, 11, 20, 17, tzinfo=UTC)
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
CHANGED: Final = EventDescriptor(
    name="file.changed",
    description="A file has changed.",
    input_schema={"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": False},
    payload_schema={"type": "object"},
)
POLL_ONLY: Final = EventDescriptor(
    name="disk.full", description="", input_schema={}, payload_schema={}, delivery=(DeliveryMode.POLL,)
)
PUSH_ONLY: Final = EventDescriptor(
    name="load.high", description="", input_schema={}, payload_schema={}, delivery=(DeliveryMode.PUSH,)
)


def make_occurrence(number: int) -> EventOccurrence:
    return EventOccurrence(
        event_id=f"e{number}", name="file.changed", timestamp=NOW, data={"number": number}, cursor=f"c{number}"
    )


@dataclass
class FakeBackend:
    """Implements `EventBackend`."""

    page: OccurrencePage = field(default_factory=lambda: OccurrencePage(cursor="c0"))
    stream: Sequence[OccurrencePage | EventError] = ()
    grant: SubscriptionGrant = field(
        default_factory=lambda: SubscriptionGrant(id="sub_1", refresh_before=NOW, cursor=None, truncated=False)
    )
    implied: Mapping[str, Any] = field(default_factory=dict[str, Any])
    polls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    subscribed: list[SubscriptionRequest] = field(default_factory=list[SubscriptionRequest])
    unsubscribed: list[SubscriptionKey] = field(default_factory=list[SubscriptionKey])
    is_stream_closed: bool = False

    async def list_descriptors(self, caller: Caller) -> Sequence[EventDescriptor]:  # noqa: ARG002
        return [CHANGED, POLL_ONLY, PUSH_ONLY]

    async def find_descriptor(self, caller: Caller, name: str) -> EventDescriptor | None:
        return next((each for each in await self.list_descriptors(caller) if each.name == name), None)

    def implied_arguments(self, caller: Caller, name: str) -> Mapping[str, Any]:  # noqa: ARG002
        return self.implied

    async def poll_occurrences(self, caller: Caller, interest: Interest, **options: Any) -> OccurrencePage:  # noqa: ARG002
        self.polls.append({"interest": interest, **options})
        return self.page

    async def follow_occurrences(
        self,
        caller: Caller,  # noqa: ARG002
        interest: Interest,
        **options: Any,
    ) -> AsyncGenerator[OccurrencePage]:
        self.polls.append({"interest": interest, **options})
        try:
            for page in self.stream:
                if isinstance(page, EventError):
                    raise page
                yield page
        finally:
            self.is_stream_closed = True

    async def subscribe(self, caller: Caller, request: SubscriptionRequest) -> SubscriptionGrant:  # noqa: ARG002
        self.subscribed.append(request)
        return self.grant

    async def unsubscribe(self, caller: Caller, key: SubscriptionKey) -> None:  # noqa: ARG002
        self.unsubscribed.append(key)


def make_endpoint(backend: FakeBackend) -> EventEndpoint[Caller]:
    def find_error(descriptor: EventDescriptor, arguments: Mapping[str, Any]) -> str | None:
        known = descriptor.input_schema.get("properties", {})
        return next((f"#/arguments/{name} is unknown" for name in arguments if name not in known), None)

    policy: EndpointPolicy[Caller] = EndpointPolicy(
        get_principal=lambda caller: caller, find_argument_error=find_error, wait_seconds_max=45.0
    )
    return EventEndpoint(backend, policy)
