"""The event log behind `protocol.mcp_events.endpoint`: event types, pages of the log, and subscriptions, from the services.

An event type has a name in the log and a name that the client sees. They differ for an upstream's types at its own endpoint:

    in the log and at /mcp    github/pr.opened       at /mcp/github    pr.opened

Ringback's own types have filters as arguments; at `/mcp/{upstream}` the argument `upstream` is implied. An upstream's type that
has the name of one of Ringback's, as those of a Ringback behind this one do, is offered at `/mcp` only. The arguments of an
upstream's types are the upstream's own: its events are in the log, under the topic of the arguments, while a client demands
them.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from ringback.domain.cursor import encode_log_position
from ringback.domain.errors import StoreUnavailable, UnknownUpstream
from ringback.domain.event import Event, EventName
from ringback.domain.event_rows import EventFilter
from ringback.domain.event_types import DEMAND_SECONDS, EventType, qualified_name
from ringback.domain.meta import SUBSCRIBER_META_KEY
from ringback.domain.principal import Caller
from ringback.mcp_server.event_types import (
    OWN_EVENT_NAMES,
    build_external_descriptor,
    build_own_descriptors,
    to_event_filter,
    to_published_filter,
)
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.meta import read_label
from ringback.mcp_server.request_context import RequestContext
from ringback.protocol.mcp_events.backend import (
    Interest,
    OccurrencePage,
    SubscriptionGrant,
    SubscriptionKey,
    SubscriptionRequest,
)
from ringback.protocol.mcp_events.descriptors import EventDescriptor
from ringback.protocol.mcp_events.endpoint import HEARTBEAT_SECONDS
from ringback.protocol.mcp_events.errors import EventError, EventErrorName, event_not_found
from ringback.protocol.mcp_events.occurrence import EventOccurrence
from ringback.protocol.mcp_events.subscription_key import canonical_arguments
from ringback.services.events.event_errors import raising_event_errors
from ringback.services.events.event_polls import EventRequest
from ringback.services.events.event_streams import StreamPage

DEMAND_INTERVAL_SECONDS: Final = DEMAND_SECONDS / 4
"""How often a stream renews its demand for an upstream's events, and learns that their type is gone."""
_STORE_UNAVAILABLE: Final = EventError(
    EventErrorName.INTERNAL_ERROR, "The event log cannot be read now. The stream goes on when it can."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogInterest:
    """An interest as the log knows it."""

    event_filter: EventFilter
    has_missed_events: bool = False
    """Whether events after the cursor are not in the log: the demand is new, or the upstream has lost them."""
    may_have_gaps: bool = False
    """Whether an upstream sends the events: it may lose some at any time."""


class GatewayEventBackend:
    """Implements `protocol.mcp_events.backend.EventBackend`; the caller is the context of the request."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    # -- event types --

    async def list_descriptors(self, caller: RequestContext) -> Sequence[EventDescriptor]:
        upstream = caller.endpoint.upstream
        external = await self._gateway.event_types.list_event_types(caller.caller, upstream)
        descriptors = [build_external_descriptor(each, upstream) for each in external]
        return [*_list_own_descriptors(upstream), *(each for each in descriptors if each.name not in OWN_EVENT_NAMES)]

    async def find_descriptor(self, caller: RequestContext, name: str) -> EventDescriptor | None:
        if name in OWN_EVENT_NAMES:
            return next(each for each in _list_own_descriptors(caller.endpoint.upstream) if each.name == name)
        found = await self._find_external(caller, name)
        return None if found is None else build_external_descriptor(found, caller.endpoint.upstream)

    def implied_arguments(self, caller: RequestContext, name: str) -> Mapping[str, Any]:
        upstream = caller.endpoint.upstream
        return {"upstream": upstream} if upstream is not None and name in OWN_EVENT_NAMES else {}

    # -- poll and push --

    async def poll_occurrences(
        self,
        caller: RequestContext,
        interest: Interest,
        *,
        cursor: str | None,
        max_age_seconds: float | None,
        limit: int,
        wait_seconds: float,
    ) -> OccurrencePage:
        wanted = await self._resolve_interest(caller, interest, cursor)
        page = await self._gateway.event_polls.poll_events(
            caller.caller,
            EventRequest(event_filter=wanted.event_filter, cursor=cursor, max_age_seconds=max_age_seconds),
            limit=limit,
            wait_seconds=wait_seconds,
        )
        return OccurrencePage(
            occurrences=[to_occurrence(event, interest.name) for event in page.events],
            cursor=page.cursor,
            truncated=page.is_truncated or wanted.has_missed_events,
            has_more=page.has_more,
        )

    async def follow_occurrences(
        self, caller: RequestContext, interest: Interest, *, cursor: str | None, max_age_seconds: float | None
    ) -> AsyncGenerator[OccurrencePage]:
        wanted, clock = await self._resolve_interest(caller, interest, cursor), self._gateway.clock
        request = EventRequest(event_filter=wanted.event_filter, cursor=cursor, max_age_seconds=max_age_seconds)
        pages = self._gateway.event_streams.follow_events(caller.caller, request, heartbeat_seconds=HEARTBEAT_SECONDS)
        has_missed_events = wanted.has_missed_events
        demanded_at = clock.monotonic()
        gaps = _StreamGaps(self._gateway, caller.caller, wanted)
        async with aclosing(pages):
            async for page in pages:
                has_missed_events = await gaps.has_gap(page) or has_missed_events
                yield _to_occurrence_page(page, interest.name, has_missed_events=has_missed_events)
                has_missed_events = has_missed_events and page.is_store_unavailable  # that page says nothing else
                if clock.monotonic() >= demanded_at + DEMAND_INTERVAL_SECONDS:
                    demanded_at = clock.monotonic()
                    try:
                        with raising_event_errors():
                            renewed = await self._resolve_interest(caller, interest, page.cursor)
                        has_missed_events = renewed.has_missed_events
                    except EventError as error:
                        if error.name != EventErrorName.INTERNAL_ERROR:
                            raise  # the stream is terminated with it
                        # The store is unavailable. Demands last for four intervals; the next one may succeed.
                        yield OccurrencePage(cursor=page.cursor, error=_STORE_UNAVAILABLE)

    # -- webhooks --

    async def subscribe(self, caller: RequestContext, request: SubscriptionRequest) -> SubscriptionGrant:
        name = _get_log_name(caller, request.name)
        return await self._gateway.event_subscriptions.subscribe(
            caller.caller,
            replace(request, name=name, subscriber=_read_subscriber(caller)),
            shown_name=None if name == request.name else request.name,
        )

    async def unsubscribe(self, caller: RequestContext, key: SubscriptionKey) -> None:
        log_key = replace(key, name=_get_log_name(caller, key.name), subscriber=_read_subscriber(caller))
        await self._gateway.event_subscriptions.unsubscribe(caller.caller, log_key)

    # -- names and arguments --

    async def _find_external(self, caller: RequestContext, name: str) -> EventType | None:
        return await self._gateway.event_types.find_event_type(caller.caller, _get_log_name(caller, name))

    async def _resolve_interest(self, caller: RequestContext, interest: Interest, cursor: str | None) -> LogInterest:
        """The interest in the log. Renews the demand for events of an upstream; raises `EventError` if their type is gone."""
        if interest.name in OWN_EVENT_NAMES:
            return await self._resolve_own_interest(caller.caller, interest, cursor)
        event_type = await self._find_external(caller, interest.name)
        if event_type is None:
            raise event_not_found(interest.name)
        if event_type.upstream is None:
            return LogInterest(event_filter=to_published_filter(interest))
        demanded = await self._gateway.event_types.demand_events(
            caller.caller, event_type, canonical_arguments(interest.arguments)
        )
        event_filter = EventFilter(name=event_type.name, topic=demanded.topic or "")
        return LogInterest(
            event_filter=event_filter, has_missed_events=demanded.has_missed_events(cursor), may_have_gaps=True
        )

    async def _resolve_own_interest(self, caller: Caller, interest: Interest, cursor: str | None) -> LogInterest:
        event_filter, upstream = to_event_filter(interest), interest.arguments.get("upstream")
        if interest.name != EventName.UPSTREAM_CHANGED:
            if upstream is not None and not caller.may_use_upstream(upstream):
                raise UnknownUpstream("arguments.upstream: there is no upstream of this name that you may use.")
            return LogInterest(event_filter=event_filter)
        demanded = await self._gateway.change_demands.demand_changes(
            caller, interest.arguments["upstream"], interest.arguments.get("uri")
        )
        return LogInterest(event_filter=event_filter, has_missed_events=demanded.has_missed_events(cursor))


class _StreamGaps:
    """Finds the gaps that an upstream's events get while a stream follows them. Polls compare their cursor with the demand."""

    def __init__(self, gateway: Gateway, caller: Caller, interest: LogInterest) -> None:
        self._gateway = gateway
        self._caller = caller
        self._interest = interest
        self._checked_seq: int | None = None
        """The client knows of all gaps up to here."""

    async def has_gap(self, page: StreamPage) -> bool:
        """Whether a gap is between the page before this one and its end.

        Reads nothing if every place of the log between the two has an event of this page: a gap has a place of its own.
        """
        after, end = self._checked_seq, page.position.seq
        if not self._interest.may_have_gaps or after is None or end - after == len(page.events):
            self._checked_seq = end
            return False
        where = self._interest.event_filter
        try:
            gap_seq = await self._gateway.event_types.get_gap_seq(self._caller, where.name or "", where.topic)
        except StoreUnavailable:
            return False  # the next page asks again, from the same place on
        self._checked_seq = end
        return after < gap_seq <= end


def to_occurrence(event: Event, shown_name: str) -> EventOccurrence:
    """The event as a poll and a stream send it. A webhook's `data` has more members: for its receiver."""
    return EventOccurrence(
        event_id=event.id,
        name=shown_name,
        timestamp=event.timestamp,
        data=event.data,
        cursor=encode_log_position(event.position),
    )


def _to_occurrence_page(page: StreamPage, shown_name: str, *, has_missed_events: bool) -> OccurrencePage:
    return OccurrencePage(
        occurrences=[to_occurrence(event, shown_name) for event in page.events],
        cursor=page.cursor,
        truncated=page.is_truncated or has_missed_events,
        error=_STORE_UNAVAILABLE if page.is_store_unavailable else None,
    )


def _get_log_name(caller: RequestContext, name: str) -> str:
    """The name in the log of the event type that the client names."""
    upstream = caller.endpoint.upstream
    return name if upstream is None or name in OWN_EVENT_NAMES else qualified_name(upstream, name)


def _read_subscriber(caller: RequestContext) -> str | None:
    """Which of its clients a server subscribes for; raises `InvalidRequest` for an invalid one."""
    return read_label(caller.meta, (SUBSCRIBER_META_KEY,))


@lru_cache(maxsize=256)
def _list_own_descriptors(upstream: str | None) -> Sequence[EventDescriptor]:
    return build_own_descriptors(upstream)
