"""The five methods of MCP Events over a backend: the order of the checks, the results and the frames of a stream.

    events/subscribe checks in this order (mcp-events §6), so that nothing is provisioned for a request that is refused:

    principal ▸ event type ▸ delivery mode ▸ arguments ▸ secret ▸ URL          here
    quota ▸ authorization ▸ verification of the callback ▸ stored              in the backend

The methods take the raw params of the request and return the result in wire form. They raise `EventError`, which the transport
writes with `to_error_object` and the profile of the request.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, Generic

from ringback.protocol.mcp_events import requests
from ringback.protocol.mcp_events.backend import (
    CallerT_contra,
    DeliveryStatus,
    EventBackend,
    Interest,
    OccurrencePage,
    SubscriptionGrant,
    SubscriptionKey,
    SubscriptionRequest,
)
from ringback.protocol.mcp_events.callback_url import find_callback_url_error
from ringback.protocol.mcp_events.descriptors import EventDescriptor
from ringback.protocol.mcp_events.errors import (
    ErrorProfile,
    EventError,
    event_not_found,
    forbidden,
    invalid_params,
    to_error_object,
    unsupported,
)
from ringback.protocol.mcp_events.names import (
    SUBSCRIPTION_ID_META_KEY,
    DeliveryMode,
    EventNotification,
)
from ringback.protocol.mcp_events.occurrence import format_timestamp
from ringback.protocol.mcp_events.requests import parse_params, to_seconds
from ringback.protocol.mcp_events.subscription_key import canonical_arguments
from ringback.signing.secrets import InvalidSecret, parse_secret

HEARTBEAT_SECONDS: Final = 10.0
"""The specification asks for at most 30 s. SSE comments on this stream count as a fault (mcp-events §8, Later
wording); the SDK sends one after 15 s of silence, and frames at this interval keep it from doing so."""
NEXT_POLL_MS: Final = 2000
"""The pause that a poll advises. Clients wait at least 1000 ms; that would double the load of idle polls."""
EVENTS_PER_POLL_MAX: Final = 100
"""As for the pages of REST. The rest follows with `hasMore`."""

SendFrame = Callable[[str, Mapping[str, Any]], Awaitable[None]]
"""Sends a notification on the response stream of the request: its method and its params."""
Result = dict[str, Any]


@dataclass(frozen=True, kw_only=True)  # a generic class with slots cannot be called as `EndpointPolicy[Caller](…)`
class EndpointPolicy(Generic[CallerT_contra]):
    """What differs between servers."""

    get_principal: Callable[[CallerT_contra], str | None]
    """Who owns the caller's subscriptions; None for an unauthenticated caller, which may poll and stream, not subscribe."""
    find_argument_error: Callable[[EventDescriptor, Mapping[str, Any]], str | None]
    """Validates arguments against the descriptor's inputSchema: one sentence, or None if they are valid."""
    measure_check: Callable[[CallerT_contra], AbstractContextManager[None]] = field(
        default=lambda _caller: nullcontext()
    )
    """Entered around each validation of a caller's arguments; may raise to refuse it."""
    find_url_error: Callable[[str], str | None] = find_callback_url_error
    """Checks a callback URL: one sentence, or None if it is well formed and allowed."""
    wait_seconds_max: float = 45.0
    """The longest long poll."""


class EventEndpoint(Generic[CallerT_contra]):
    def __init__(self, backend: EventBackend[CallerT_contra], policy: EndpointPolicy[CallerT_contra]) -> None:
        self._backend = backend
        self._policy = policy

    async def list_events(self, caller: CallerT_contra, params: Mapping[str, Any] | None) -> Result:
        """One page: a server's event types are few."""
        if parse_params(requests.ListParams, params).cursor is not None:
            raise invalid_params("The list of event types is one page. Start without a cursor.")
        descriptors = await self._backend.list_descriptors(caller)
        return {"events": [descriptor.to_wire() for descriptor in descriptors]}

    async def poll_events(self, caller: CallerT_contra, params: Mapping[str, Any] | None) -> Result:
        request = parse_params(requests.PollParams, params)
        descriptor = await self._find_descriptor(caller, request.name)
        interest = self._check_interest(caller, descriptor, request.arguments, DeliveryMode.POLL)
        page = await self._backend.poll_occurrences(
            caller,
            interest,
            cursor=request.cursor,
            max_age_seconds=to_seconds(request.max_age_ms),
            limit=min(request.max_events or EVENTS_PER_POLL_MAX, EVENTS_PER_POLL_MAX),
            wait_seconds=min((request.wait_ms or 0.0) / 1000, self._policy.wait_seconds_max),
        )
        return {
            "events": [occurrence.to_wire(with_cursor=False) for occurrence in page.occurrences],
            "cursor": page.cursor,
            "truncated": page.truncated,
            "hasMore": page.has_more,
            "nextPollMs": NEXT_POLL_MS,
        }

    async def stream_events(
        self,
        caller: CallerT_contra,
        params: Mapping[str, Any] | None,
        *,
        request_id: int | str,
        profile: ErrorProfile,
        send: SendFrame,
    ) -> Result:
        """Send frames until the backend ends the stream; return the final result. Cancel it when the client disconnects.

        An `EventError` is raised only before the first frame, so that the client gets a plain JSON-RPC error and no stream.
        After it, an `EventError` of the backend ends the stream with a `terminated` frame.
        """
        request = parse_params(requests.StreamParams, params)
        descriptor = await self._find_descriptor(caller, request.name)
        interest = self._check_interest(caller, descriptor, request.arguments, DeliveryMode.PUSH)
        meta = {"_meta": {SUBSCRIPTION_ID_META_KEY: request_id}}
        frames = _StreamFrames(send, meta, profile, request.cursor)
        pages = self._backend.follow_occurrences(
            caller, interest, cursor=request.cursor, max_age_seconds=to_seconds(request.max_age_ms)
        )
        async with aclosing(pages):
            try:
                async for page in pages:
                    await frames.send_page(page)
            except EventError as error:
                if not frames.has_started:
                    raise
                await frames.send_error(EventNotification.TERMINATED, error)
        return meta

    async def subscribe(
        self, caller: CallerT_contra, params: Mapping[str, Any] | None, *, profile: ErrorProfile
    ) -> Result:
        self._require_principal(caller)
        request = parse_params(requests.SubscribeParams, params)
        descriptor = await self._find_descriptor(caller, request.name)
        _require_webhook(request.delivery.mode)
        interest = self._check_interest(caller, descriptor, request.arguments, DeliveryMode.WEBHOOK)
        secret = _check_secret(request.delivery.secret)
        url = _require_url(request.delivery.url)
        if (problem := self._policy.find_url_error(url)) is not None:
            raise invalid_params(problem)
        grant = await self._backend.subscribe(
            caller,
            SubscriptionRequest(
                name=interest.name,
                arguments=interest.arguments,
                canonical_arguments=canonical_arguments(interest.arguments),
                url=url,
                secret=secret,
                cursor=request.cursor,
                max_age_seconds=to_seconds(request.max_age_ms),
                ttl=request.requested_ttl,
                error_profile=profile,
            ),
        )
        return _serialize_grant(grant)

    async def unsubscribe(self, caller: CallerT_contra, params: Mapping[str, Any] | None) -> Result:
        """End a subscription by its key. The arguments are not validated: the schema may have changed since."""
        self._require_principal(caller)
        request = parse_params(requests.UnsubscribeParams, params)
        _require_webhook(request.delivery.mode)
        arguments = self._add_implied_arguments(caller, request.name, request.arguments or {})
        url = _require_url(request.delivery.url)
        key = SubscriptionKey(name=request.name, canonical_arguments=canonical_arguments(arguments), url=url)
        await self._backend.unsubscribe(caller, key)
        return {}

    def _require_principal(self, caller: CallerT_contra) -> None:
        if self._policy.get_principal(caller) is None:
            raise forbidden("Webhook subscriptions require authentication. Poll or stream the events instead.")

    async def _find_descriptor(self, caller: CallerT_contra, name: str) -> EventDescriptor:
        if (descriptor := await self._backend.find_descriptor(caller, name)) is not None:
            return descriptor
        # The list is also for the hint, and it may be newer: a backend may ask others for it.
        known = {each.name: each for each in await self._backend.list_descriptors(caller)}
        if name not in known:
            raise event_not_found(name, list(known))
        return known[name]

    def _check_interest(
        self,
        caller: CallerT_contra,
        descriptor: EventDescriptor,
        arguments: Mapping[str, Any] | None,
        mode: DeliveryMode,
    ) -> Interest:
        """Raise `EventError` unless the event type offers this mode and the arguments fit its schema."""
        if mode not in descriptor.delivery:
            offered = ", ".join(descriptor.delivery)
            detail = f"The event type {descriptor.name!r} offers {offered}, not {mode}."
            raise unsupported(detail, feature="deliveryMode", value=str(mode))
        given = arguments or {}
        with self._policy.measure_check(caller):
            problem = self._policy.find_argument_error(descriptor, given)
        if problem is not None:
            raise invalid_params(problem)
        return Interest(name=descriptor.name, arguments=self._add_implied_arguments(caller, descriptor.name, given))

    def _add_implied_arguments(
        self, caller: CallerT_contra, name: str, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        implied = self._backend.implied_arguments(caller, name)
        for key, value in implied.items():
            if arguments.get(key, value) != value:
                raise invalid_params(f"At this endpoint, the argument {key!r} is {value!r}. Leave it out.")
        return {**arguments, **implied}


class _StreamFrames:
    """The frames of one stream. Each names its subscription: the id of the request."""

    def __init__(self, send: SendFrame, meta: Mapping[str, Any], profile: ErrorProfile, cursor: str | None) -> None:
        self._send = send
        self._cursor = cursor
        """Where the client is: before the events of the next page."""
        self._meta = meta
        self._profile = profile
        self.has_started = False

    async def send_page(self, page: OccurrencePage) -> None:
        if page.error is not None:
            await self.send_error(EventNotification.ERROR, page.error)
        elif not self.has_started or page.truncated:
            self.has_started = True
            # A client that loses the connection after this frame must not skip the events that follow it.
            cursor = (self._cursor if page.occurrences else None) or page.cursor
            await self._send_frame(EventNotification.ACTIVE, {"cursor": cursor, "truncated": page.truncated})
        elif not page.occurrences:
            await self._send_frame(EventNotification.HEARTBEAT, {"cursor": page.cursor})
        for occurrence in page.occurrences:
            await self._send_frame(EventNotification.EVENT, occurrence.to_wire(with_cursor=True))
        if page.error is None:
            self._cursor = page.cursor

    async def send_error(self, method: EventNotification, error: EventError) -> None:
        await self._send_frame(method, {"error": to_error_object(error, self._profile)})

    async def _send_frame(self, method: EventNotification, params: Mapping[str, Any]) -> None:
        meta = {**params.get("_meta", {}), **self._meta["_meta"]}
        await self._send(method, {**params, "_meta": meta})


def _require_webhook(mode: str) -> None:
    """events/subscribe is for webhooks only (mcp-events §8, Later wording: an undeclared delivery mode)."""
    if mode != DeliveryMode.WEBHOOK:
        raise unsupported(
            "events/subscribe delivers by webhook only; use events/poll or events/stream for the other modes.",
            feature="deliveryMode",
            value=mode[:_SHOWN_MODE_LENGTH_MAX],
        )


def _require_url(url: str | None) -> str:
    if url is None:
        raise invalid_params("delivery.url is required: the https URL that receives the callbacks.")
    return url


def _check_secret(secret: str | None) -> str:
    if secret is None:
        raise invalid_params("delivery.secret is required: whsec_ and base64 of 24 to 64 random bytes.")
    try:
        parse_secret(secret)
    except InvalidSecret as problem:
        raise invalid_params(f"delivery.secret: {problem}") from None
    return secret


def _serialize_grant(grant: SubscriptionGrant) -> Result:
    status = {} if grant.delivery_status is None else {"deliveryStatus": _serialize_status(grant.delivery_status)}
    return {
        "id": grant.id,
        "refreshBefore": None if grant.refresh_before is None else format_timestamp(grant.refresh_before),
        "cursor": grant.cursor,
        "truncated": grant.truncated,
        **status,
    }


def _serialize_status(status: DeliveryStatus) -> Result:
    optional = {
        "failedSince": None if status.failed_since is None else format_timestamp(status.failed_since),
        "throttled": status.throttled,
        "retryAfterMs": status.retry_after_ms,
    }
    return {
        "active": status.active,
        "lastDeliveryAt": None if status.last_delivery_at is None else format_timestamp(status.last_delivery_at),
        "lastError": None if status.last_error is None else str(status.last_error),
        **{key: value for key, value in optional.items() if value is not None},
    }


_SHOWN_MODE_LENGTH_MAX: Final = 32
"""A longer mode is cut in the error."""
