"""What a server provides for the five methods, and the values that go in and out. `endpoint` has checked a request by then."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from ringback.protocol.mcp_events.descriptors import EventDescriptor
from ringback.protocol.mcp_events.errors import CallbackFailure, ErrorProfile, EventError
from ringback.protocol.mcp_events.grants import RequestedTtl
from ringback.protocol.mcp_events.occurrence import EventOccurrence

CallerT_contra = TypeVar("CallerT_contra", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """Which events a poll, a stream or a subscription is about."""

    name: str
    arguments: Mapping[str, Any]
    """Valid for the inputSchema, and with the implied arguments of the endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OccurrencePage:
    """The next occurrences, oldest first."""

    occurrences: Sequence[EventOccurrence] = ()
    cursor: str | None
    """The position after this page; None for an event type without replay, then always."""
    truncated: bool = False
    """Whether events after the requested position are missing. The page then begins at the oldest event that is left, or, in
    a stream, has no occurrences: the next page has them."""
    has_more: bool = False
    """Whether a further poll returns more at once."""
    error: EventError | None = None
    """In a stream: a recoverable failure. The stream goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionKey:
    """What identifies a subscription of a principal."""

    name: str
    canonical_arguments: str
    """See `subscription_key.canonical_arguments`; with the implied arguments of the endpoint."""
    url: str
    """Exactly as the client sent it, including its query."""
    subscriber: str | None = None
    """Which client of the principal, if the principal is a server that subscribes for its clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionRequest:
    """A checked events/subscribe."""

    name: str
    arguments: Mapping[str, Any]
    canonical_arguments: str
    url: str
    secret: str = field(repr=False)
    """`whsec_…` of 24 to 64 bytes, as the client sent it."""
    cursor: str | None
    """Replay from here if the subscription does not exist or has lapsed; ignored while it is live. None: from now."""
    max_age_seconds: float | None
    """With a cursor: replay nothing that is older."""
    ttl: RequestedTtl
    error_profile: ErrorProfile
    subscriber: str | None = None
    """As in `SubscriptionKey`."""

    @property
    def key(self) -> SubscriptionKey:
        return SubscriptionKey(
            name=self.name, canonical_arguments=self.canonical_arguments, url=self.url, subscriber=self.subscriber
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryStatus:
    """How the deliveries of a subscription are doing (mcp-events §8, deliveryStatus)."""

    active: bool
    last_delivery_at: datetime | None = None
    last_error: CallbackFailure | None = None
    failed_since: datetime | None = None
    throttled: bool | None = None
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGrant:
    id: str
    refresh_before: datetime | None
    """When the subscription ends without a refresh. None only if the request asked for no expiry."""
    cursor: str | None
    """A safe watermark: everything at or before it was acknowledged or given up."""
    truncated: bool
    """Whether events between the requested cursor and the start of the replay are missing."""
    delivery_status: DeliveryStatus | None = None
    """None for a new subscription."""


class EventBackend(Protocol[CallerT_contra]):
    """Every method may raise `EventError`. An event that the caller may not see looks as if it did not exist."""

    async def list_descriptors(self, caller: CallerT_contra) -> Sequence[EventDescriptor]:
        """The event types that this caller may discover, each name once."""
        ...

    async def find_descriptor(self, caller: CallerT_contra, name: str) -> EventDescriptor | None:
        """One of the same. Called with every poll, stream and subscribe."""
        ...

    def implied_arguments(self, caller: CallerT_contra, name: str) -> Mapping[str, Any]:
        """Arguments that the endpoint adds to those of the request. Empty for most servers.

        Also called for names that have no descriptor (any more), for events/unsubscribe.
        """
        ...

    async def poll_occurrences(
        self,
        caller: CallerT_contra,
        interest: Interest,
        *,
        cursor: str | None,
        max_age_seconds: float | None,
        limit: int,
        wait_seconds: float,
    ) -> OccurrencePage:
        """The events after the cursor, at most `limit`. None: no events and the current position, at once.

        Waits up to `wait_seconds` for a first event. An unknown or expired cursor returns `truncated`, never an error.
        `max_age_seconds` moves the start to the later of the cursor and that age, and sets `truncated` if that skips events.
        """
        ...

    def follow_occurrences(
        self, caller: CallerT_contra, interest: Interest, *, cursor: str | None, max_age_seconds: float | None
    ) -> AsyncGenerator[OccurrencePage]:
        """Yield pages until the server ends the stream. Closing the generator ends it too.

        The first page comes at once and has no occurrences: its `cursor` is where the stream begins. A page with `truncated`
        has none either. Any other page without occurrences is a heartbeat; the backend yields one every
        `endpoint.HEARTBEAT_SECONDS`, between occurrences too. An `EventError` before the first page refuses the stream; later
        it ends the subscription.
        """
        ...

    async def subscribe(self, caller: CallerT_contra, request: SubscriptionRequest) -> SubscriptionGrant:
        """Insert or refresh the subscription: quota, authorization, verification of the callback, and only then the row."""
        ...

    async def unsubscribe(self, caller: CallerT_contra, key: SubscriptionKey) -> None:
        """Raises `subscription_not_found()` for a key that this caller never had, or had too long ago."""
        ...
