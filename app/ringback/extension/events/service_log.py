"""A Ringback service as the log of a server's events.

    emit ──▶ event_outbox ──▶ POST /v1/events/batch              in memory until it has arrived
    events/poll, stream, subscribe, unsubscribe ──▶ /mcp         the same methods, with this server's API key

All clients of this server are one principal at the service: the owner of the API key. So an event is for everybody, and filters
by arguments, which the service does not know, are not offered. Subscriptions belong to single clients: the service gets the
digest of the client's principal with each subscribe and unsubscribe.
"""

import asyncio
import json
import logging
import random
import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, Final

import httpx

from ringback.asyncio_tasks import end_tasks
from ringback.client import (
    ConnectionFailed,
    Forbidden,
    NewEvent,
    Problem,
    QuotaExceeded,
    RingbackClient,
    Unauthenticated,
    Unavailable,
    UnexpectedAnswer,
)
from ringback.client.arguments import is_on_this_machine
from ringback.domain.clock import Clock, SystemClock
from ringback.domain.meta import SUBSCRIBER_META_KEY
from ringback.extension.events.event_log import EmittedEvent
from ringback.extension.events.event_outbox import EventOutbox
from ringback.extension.events.event_types import DeclaredEventType, DeclaredEventTypes
from ringback.extension.events.principals import EventCaller, audience_of
from ringback.extension.events.service_methods import (
    ServiceMethods,
    ServiceUnreachable,
    build_subscribe_params,
    parse_error,
    parse_grant,
    parse_occurrence,
    unreachable,
)
from ringback.extension.report_outbox import ReportFailed, ReportRejected
from ringback.protocol.mcp_events.backend import (
    Interest,
    OccurrencePage,
    SubscriptionGrant,
    SubscriptionKey,
    SubscriptionRequest,
)
from ringback.protocol.mcp_events.descriptors import EventDescriptor
from ringback.protocol.mcp_events.endpoint import EndpointPolicy, EventEndpoint
from ringback.protocol.mcp_events.errors import EventError, EventErrorName
from ringback.protocol.mcp_events.names import ALL_DELIVERY_MODES, DeliveryMode, EventMethod, EventNotification
from ringback.protocol.mcp_events.occurrence import format_timestamp
from ringback.services.events.event_publishing import RESERVED_ID_PREFIXES

log = logging.getLogger(__name__)

DeclareType = Callable[[str], Awaitable[None]]
"""Declares a type at the service, once. Raises `ReportFailed` or `ReportRejected`."""
_EVENT_ID_BYTES: Final = 16
_EVENT_ID_PATTERN: Final = re.compile(r"[!-9;-~]{1,128}")
"""What POST /v1/events takes."""
_SERVER_ERROR_STATUS: Final = 500
_TYPES_QUOTA: Final = "event_types"
"""The service's quota of declared types."""
_PASSING_REFUSALS: Final = frozenset({EventErrorName.INTERNAL_ERROR, EventErrorName.RESOURCE_EXHAUSTED})
"""Of a stream that is opened again: the service still counts the broken one, or does not accept the key for now."""
RECONNECT_SECONDS: Final = 2.0
"""Before a stream of the service is opened again, from its last cursor."""
DRAIN_SECONDS: Final = 10.0
"""How long a shutdown waits until all events have arrived."""
_UNLIMITED: Final = httpx.Limits(max_connections=None, max_keepalive_connections=20)
"""Each stream and each long poll of a client holds a connection. httpx's hundred, once held, would stop all other requests."""
_WITHOUT_WEBHOOKS: Final = (DeliveryMode.PUSH, DeliveryMode.POLL)


class ServiceLog:
    """Implements `event_log.EventLog`."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None,
        transport: httpx.AsyncBaseTransport | None,
        drain_seconds: float,
        clock: Clock | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._api_key = api_key
        self._transport = transport
        self._drain_seconds = drain_seconds
        self._clock = clock or SystemClock()

    @asynccontextmanager
    async def open(self, types: DeclaredEventTypes) -> AsyncGenerator["OpenServiceLog"]:
        for declared in types:
            _require_without_arguments(declared)
        headers = {} if self._api_key is None else {"authorization": f"Bearer {self._api_key}"}
        async with (
            RingbackClient(self._url, api_key=self._api_key, transport=self._transport) as client,
            httpx.AsyncClient(
                headers=headers,
                transport=self._transport,
                limits=_UNLIMITED,
                trust_env=not is_on_this_machine(self._url),
            ) as http,
        ):
            publisher = _EventPublisher(client, types)
            outbox = EventOutbox(publisher.send_events, clock=self._clock, random_fraction=random.SystemRandom().random)
            sending = asyncio.create_task(outbox.run())
            try:
                methods = ServiceMethods(http, f"{self._url}/mcp")
                yield OpenServiceLog(methods, outbox, types, publisher.declare, clock=self._clock)
                await outbox.drain(self._drain_seconds)
            finally:
                await end_tasks([sending])


class OpenServiceLog:
    """Implements `event_log.OpenEvents` and `protocol.mcp_events.backend.EventBackend`."""

    def __init__(
        self,
        methods: ServiceMethods,
        outbox: EventOutbox,
        types: DeclaredEventTypes,
        declare: DeclareType,
        *,
        clock: Clock,
    ) -> None:
        self._methods = methods
        self._outbox = outbox
        self._types = types
        self._declare = declare
        self._clock = clock
        self.endpoint = EventEndpoint(
            self,
            EndpointPolicy[EventCaller](
                get_principal=lambda caller: caller.principal,
                find_argument_error=self._find_argument_error,
                find_url_error=lambda _url: None,  # the service decides about its callbacks
            ),
        )

    async def record_event(self, event: EmittedEvent) -> str:
        """Submit the event to the outbox: it is not stored yet. Raises `OutboxFull`."""
        if event.principal is not None:
            raise ValueError(
                "A Ringback service stores this server's events for everybody: all its clients are the owner of the API key. "
                "Leave `principal` out, or use Events.embedded(…)."
            )
        if event.event_id is not None and not _is_publishable_id(event.event_id):
            raise ValueError(
                "event_id must have 1 to 128 visible ASCII characters, without a colon. It must not begin with "
                f"{' or '.join(RESERVED_ID_PREFIXES)}: the service refuses the event later, when it can only be logged."
            )
        event_id = event.event_id or secrets.token_hex(_EVENT_ID_BYTES)
        occurred_at = event.occurred_at or self._clock.now()
        self._outbox.submit_event(
            NewEvent(name=event.name, data=event.data, id=event_id, timestamp=format_timestamp(occurred_at))
        )
        return event_id

    async def list_descriptors(self, caller: EventCaller) -> Sequence[EventDescriptor]:
        return [_describe(caller, each) for each in self._types]

    async def find_descriptor(self, caller: EventCaller, name: str) -> EventDescriptor | None:
        """Also declares the type at the service, which knows no other."""
        if (found := self._types.get(name)) is None:
            return None
        try:
            await self._declare(name)
        except ReportFailed:
            raise unreachable() from None
        except ReportRejected as problem:
            log.warning("event_type.refused", extra={"event_name": name, "reason": str(problem)})
            detail = (
                "The service that stores the events does not take this event type. Its operator sees why in the log."
            )
            raise EventError(EventErrorName.INTERNAL_ERROR, detail) from None
        return _describe(caller, found)

    def implied_arguments(self, caller: EventCaller, name: str) -> Mapping[str, Any]:  # noqa: ARG002 - the Protocol's
        return {}

    async def poll_occurrences(
        self,
        caller: EventCaller,  # noqa: ARG002 - the Protocol's
        interest: Interest,
        *,
        cursor: str | None,
        max_age_seconds: float | None,
        limit: int,
        wait_seconds: float,
    ) -> OccurrencePage:
        params = {
            **_log_params(interest, cursor, max_age_seconds),
            "maxEvents": limit,
            "timeoutMs": wait_seconds * 1000,
        }
        result = await self._methods.request(EventMethod.POLL, params, wait_seconds=wait_seconds)
        return OccurrencePage(
            occurrences=[parse_occurrence(event) for event in result["events"]],
            cursor=result["cursor"],
            truncated=bool(result.get("truncated")),
            has_more=bool(result.get("hasMore")),
        )

    async def follow_occurrences(
        self,
        caller: EventCaller,  # noqa: ARG002 - the Protocol's
        interest: Interest,
        *,
        cursor: str | None,
        max_age_seconds: float | None,
    ) -> AsyncGenerator[OccurrencePage]:
        """Frames of the service's stream. A lost one is opened again from its last cursor."""
        has_begun = False
        while True:
            is_open = False
            frames = self._methods.stream(_log_params(interest, cursor, max_age_seconds))
            try:
                async with aclosing(frames):
                    async for frame in frames:
                        page = _parse_frame(frame, cursor)
                        # The age limits the start alone: what happened during a break may be older by now.
                        cursor, max_age_seconds, has_begun, is_open = page.cursor, None, True, True
                        yield page
            except ServiceUnreachable:
                if not has_begun:
                    raise unreachable() from None
                problem = unreachable()
            except EventError as refusal:
                if is_open or not has_begun or refusal.name not in _PASSING_REFUSALS:
                    raise
                problem = refusal
            else:
                return
            yield OccurrencePage(cursor=cursor, error=problem)
            await self._clock.sleep(RECONNECT_SECONDS)

    async def subscribe(self, caller: EventCaller, request: SubscriptionRequest) -> SubscriptionGrant:
        params = {**build_subscribe_params(request), **_subscriber_params(caller)}
        return parse_grant(await self._methods.request(EventMethod.SUBSCRIBE, params, profile=request.error_profile))

    async def unsubscribe(self, caller: EventCaller, key: SubscriptionKey) -> None:
        params = {
            "name": key.name,
            "arguments": json.loads(key.canonical_arguments),
            "delivery": {"url": key.url},
            **_subscriber_params(caller),
        }
        await self._methods.request(EventMethod.UNSUBSCRIBE, params)

    def _find_argument_error(self, descriptor: EventDescriptor, arguments: Mapping[str, Any]) -> str | None:
        declared = self._types.get(descriptor.name)
        return None if declared is None else declared.find_argument_error(arguments)


class _EventPublisher:
    """Publishes batches, and declares each type before its first event."""

    def __init__(self, client: RingbackClient, types: DeclaredEventTypes) -> None:
        self._client = client
        self._types = types
        self._declared: set[str] = set()

    async def send_events(self, events: Sequence[NewEvent]) -> None:
        """Implements `event_outbox.SendEvents`."""
        for name in sorted({event["name"] for event in events}):
            await self.declare(name)
        with _as_report_errors():
            await self._client.publish_events(events)

    async def declare(self, name: str) -> None:
        """Declare the type once. Raises as `send_events` does."""
        if name in self._declared:
            return
        declared = self._types.find(name)
        with _as_report_errors():
            await self._client.declare_event_type(
                name, description=declared.description, payload_schema=declared.payload_schema
            )
        self._declared.add(name)


@contextmanager
def _as_report_errors() -> Generator[None]:
    """`ReportFailed` if a repeat may succeed, `ReportRejected` if none can.

    A key that the service does not accept says nothing about the events: they wait until the operator has mended that.
    """
    try:
        yield
    except QuotaExceeded as problem:
        # Rates pass. The number of types does not: events of one type too many would hold up those of all other types.
        refusal = ReportRejected if problem.extra.get("quota") == _TYPES_QUOTA else ReportFailed
        raise refusal(problem.detail) from problem
    except (ConnectionFailed, UnexpectedAnswer, Unavailable, Unauthenticated, Forbidden) as problem:
        raise ReportFailed(str(problem)) from problem
    except Problem as problem:
        refusal = ReportFailed if problem.status >= _SERVER_ERROR_STATUS else ReportRejected
        raise refusal(problem.detail) from problem


def _is_publishable_id(event_id: str) -> bool:
    return _EVENT_ID_PATTERN.fullmatch(event_id) is not None and not event_id.startswith(RESERVED_ID_PREFIXES)


def _describe(caller: EventCaller, declared: DeclaredEventType) -> EventDescriptor:
    return EventDescriptor(
        name=declared.name,
        description=declared.description,
        input_schema=declared.input_schema,
        payload_schema=declared.payload_schema,
        delivery=_WITHOUT_WEBHOOKS if caller.principal is None else ALL_DELIVERY_MODES,
    )


def _require_without_arguments(declared: DeclaredEventType) -> None:
    if declared.arguments is not None or declared.matches is not None:
        raise ValueError(
            f"The event type '{declared.name}' has arguments, by which a Ringback service cannot filter. Leave them out, or "
            "use Events.embedded(…)."
        )


def _subscriber_params(caller: EventCaller) -> dict[str, Any]:
    return {"_meta": {SUBSCRIBER_META_KEY: audience_of(caller.principal)}}


def _log_params(interest: Interest, cursor: str | None, max_age_seconds: float | None) -> dict[str, Any]:
    age = {} if max_age_seconds is None else {"maxAgeMs": max_age_seconds * 1000}
    return {"name": interest.name, "arguments": dict(interest.arguments), "cursor": cursor, **age}


def _parse_frame(frame: Mapping[str, Any], cursor: str | None) -> OccurrencePage:
    """The page of a frame; raises `EventError` for the end of the subscription."""
    params: Mapping[str, Any] = frame.get("params") or {}
    match frame["method"]:
        case EventNotification.EVENT:
            occurrence = parse_occurrence(params)
            return OccurrencePage(occurrences=[occurrence], cursor=occurrence.cursor or cursor)
        case EventNotification.ERROR:
            return OccurrencePage(cursor=cursor, error=parse_error(params["error"]))
        case EventNotification.TERMINATED:
            raise parse_error(params["error"])
        case _:
            return OccurrencePage(cursor=params.get("cursor", cursor), truncated=bool(params.get("truncated")))
