"""Answers the five methods from an embedded Ringback: its log, its webhooks, and the event types of the server."""

from collections import Counter
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import Any, Final

from ringback.domain.clock import Clock
from ringback.domain.cursor import encode_log_position
from ringback.domain.errors import InvalidRequest
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter
from ringback.domain.principal import ALL_SCOPES, ANONYMOUS_PRINCIPAL, Caller, Principal
from ringback.extension.events.event_log import EmittedEvent
from ringback.extension.events.event_types import DeclaredEventType, DeclaredEventTypes
from ringback.extension.events.principals import EventCaller, audience_of
from ringback.extension.events.shared_log import SERVER_PRINCIPAL, Audience
from ringback.protocol.mcp_events.backend import (
    Interest,
    OccurrencePage,
    SubscriptionGrant,
    SubscriptionKey,
    SubscriptionRequest,
)
from ringback.protocol.mcp_events.descriptors import EventDescriptor
from ringback.protocol.mcp_events.endpoint import EVENTS_PER_POLL_MAX, HEARTBEAT_SECONDS
from ringback.protocol.mcp_events.errors import EventError, EventErrorName, resource_exhausted
from ringback.protocol.mcp_events.grants import TtlRequest
from ringback.protocol.mcp_events.names import ALL_DELIVERY_MODES, DeliveryMode
from ringback.protocol.mcp_events.occurrence import EventOccurrence
from ringback.services.events.event_errors import raising_event_errors
from ringback.services.events.event_polls import EventPolls, EventRequest
from ringback.services.events.event_publishing import EventPublishing, PublishedEvent
from ringback.services.events.event_streams import EventStreams
from ringback.services.webhooks.event_subscriptions import EventSubscriptions

SERVER: Final = Caller(principal=SERVER_PRINCIPAL, scopes=ALL_SCOPES)
PAGES_PER_POLL_MAX: Final = 10
"""Full pages of the log that one poll reads. If no event in them is for the caller, the poll is empty and has more."""
STREAMS_PER_PRINCIPAL_MAX: Final = 100
"""As for a principal of the service. A client has one stream for each event type and arguments."""
STREAMS_WITHOUT_PRINCIPAL_MAX: Final = 1_000
"""All clients of a server without authentication share this number."""
LONGEST_TTL_SECONDS: Final = 1e9
"""A client with an access token gets the longest grant for no expiry: each refresh shows that its token still is valid."""
_WITHOUT_WEBHOOKS: Final = (DeliveryMode.PUSH, DeliveryMode.POLL)


class LogBackend:
    """Implements `protocol.mcp_events.backend.EventBackend`.

    With `dev`, a caller without authentication may subscribe: it is the principal `anonymous`.
    """

    def __init__(
        self,
        *,
        publishing: EventPublishing,
        polls: EventPolls,
        streams: EventStreams,
        subscriptions: EventSubscriptions,
        types: DeclaredEventTypes,
        audience: Audience,
        clock: Clock,
        dev: bool,
    ) -> None:
        self._publishing = publishing
        self._polls = polls
        self._streams = streams
        self._subscriptions = subscriptions
        self._types = types
        self._audience = audience
        self._clock = clock
        self._dev = dev
        self._open_streams: Counter[str | None] = Counter()

    async def record_event(self, event: EmittedEvent) -> str:
        published = PublishedEvent(
            name=event.name,
            data=dict(event.data),
            id=event.event_id,
            timestamp=event.occurred_at,
            client_session_id=audience_of(event.principal),
        )
        try:
            (result,) = await self._publishing.publish_events(SERVER, [published])
        except InvalidRequest as problem:
            raise ValueError(problem.detail) from None
        return result.event_id

    def find_principal(self, caller: EventCaller) -> str | None:
        """Who owns the caller's subscriptions; None if it may have none."""
        return ANONYMOUS_PRINCIPAL if caller.principal is None and self._dev else caller.principal

    # -- event types --

    async def list_descriptors(self, caller: EventCaller) -> Sequence[EventDescriptor]:
        return [self._describe(caller, each) for each in self._types]

    async def find_descriptor(self, caller: EventCaller, name: str) -> EventDescriptor | None:
        found = self._types.get(name)
        return None if found is None else self._describe(caller, found)

    def implied_arguments(self, caller: EventCaller, name: str) -> Mapping[str, Any]:  # noqa: ARG002 - the Protocol's
        return {}

    def _describe(self, caller: EventCaller, declared: DeclaredEventType) -> EventDescriptor:
        return EventDescriptor(
            name=declared.name,
            description=declared.description,
            input_schema=declared.input_schema,
            payload_schema=declared.payload_schema,
            delivery=_WITHOUT_WEBHOOKS if self.find_principal(caller) is None else ALL_DELIVERY_MODES,
        )

    # -- polls and streams --

    async def poll_occurrences(
        self,
        caller: EventCaller,
        interest: Interest,
        *,
        cursor: str | None,
        max_age_seconds: float | None,
        limit: int,
        wait_seconds: float,
    ) -> OccurrencePage:
        ends_at = self._clock.monotonic() + wait_seconds
        is_truncated, pages_left = False, PAGES_PER_POLL_MAX
        while True:
            request = EventRequest(
                event_filter=EventFilter(name=interest.name), cursor=cursor, max_age_seconds=max_age_seconds
            )
            left = max(0.0, ends_at - self._clock.monotonic())
            with raising_event_errors():
                page = await self._polls.poll_events(SERVER, request, limit=EVENTS_PER_POLL_MAX, wait_seconds=left)
            is_truncated = is_truncated or page.is_truncated
            seen = self._select_events(caller, interest, page.events)
            pages_left -= page.has_more
            goes_on = pages_left > 0 if page.has_more else page.events and left > 0
            if seen or not goes_on:
                return _build_page(seen, page.cursor, limit=limit, truncated=is_truncated, has_more=page.has_more)
            cursor, max_age_seconds = page.cursor, None

    async def follow_occurrences(
        self, caller: EventCaller, interest: Interest, *, cursor: str | None, max_age_seconds: float | None
    ) -> AsyncGenerator[OccurrencePage]:
        request = EventRequest(
            event_filter=EventFilter(name=interest.name), cursor=cursor, max_age_seconds=max_age_seconds
        )
        pages = self._streams.follow_events(SERVER, request, heartbeat_seconds=HEARTBEAT_SECONDS)
        with self._count_stream(caller), raising_event_errors():
            async with aclosing(pages):
                async for page in pages:
                    seen = [_to_occurrence(event) for event in self._select_events(caller, interest, page.events)]
                    if page.events and not seen and not page.is_truncated:
                        continue  # events for others; the next heartbeat has the place after them
                    error = _STORE_UNAVAILABLE if page.is_store_unavailable else None
                    yield OccurrencePage(occurrences=seen, cursor=page.cursor, truncated=page.is_truncated, error=error)

    def _select_events(self, caller: EventCaller, interest: Interest, events: Sequence[Event]) -> Sequence[Event]:
        principal = self.find_principal(caller)
        return [event for event in events if self._audience.matches(principal, interest.arguments, event)]

    @contextmanager
    def _count_stream(self, caller: EventCaller) -> Generator[None]:
        """Streams of one principal leave room for those of others."""
        principal = caller.principal
        maximum = STREAMS_WITHOUT_PRINCIPAL_MAX if principal is None else STREAMS_PER_PRINCIPAL_MAX
        if self._open_streams[principal] >= maximum:
            raise resource_exhausted(f"{maximum} streams are open. Close one first.", limit="streams", maximum=maximum)
        self._open_streams[principal] += 1
        try:
            yield
        finally:
            self._open_streams[principal] -= 1
            if not self._open_streams[principal]:
                del self._open_streams[principal]

    # -- subscriptions --

    async def subscribe(self, caller: EventCaller, request: SubscriptionRequest) -> SubscriptionGrant:
        if caller.principal is not None and request.ttl is TtlRequest.NO_EXPIRY:
            request = replace(request, ttl=LONGEST_TTL_SECONDS)
        # The arguments are no filters of calls: `Audience` reads them from their canonical form.
        request = replace(request, arguments={})
        return await self._subscriptions.subscribe(self._subscriber(caller), request)

    async def unsubscribe(self, caller: EventCaller, key: SubscriptionKey) -> None:
        await self._subscriptions.unsubscribe(self._subscriber(caller), key)

    def _subscriber(self, caller: EventCaller) -> Caller:
        return Caller(principal=Principal(self.find_principal(caller) or ""), scopes=ALL_SCOPES)


def _build_page(events: Sequence[Event], cursor: str, *, limit: int, truncated: bool, has_more: bool) -> OccurrencePage:
    """The first events; if that leaves some out, the page ends with the last one that it has."""
    if len(events) > limit:
        events, has_more = events[:limit], True
        cursor = encode_log_position(events[-1].position)
    return OccurrencePage(
        occurrences=[_to_occurrence(event) for event in events], cursor=cursor, truncated=truncated, has_more=has_more
    )


def _to_occurrence(event: Event) -> EventOccurrence:
    return EventOccurrence(
        event_id=event.id,
        name=event.name,
        timestamp=event.timestamp,
        data=event.data,
        cursor=encode_log_position(event.position),
    )


_STORE_UNAVAILABLE: Final = EventError(
    EventErrorName.INTERNAL_ERROR, "The log cannot be read now. The stream goes on as soon as it can."
)
