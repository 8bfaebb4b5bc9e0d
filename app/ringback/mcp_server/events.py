"""MCP Events: events/list, poll, stream, subscribe and unsubscribe over the event log, in both eras.

    events/list         Ringback's own event types (`event_types`)
    events/poll         pages of the log, with long polls
    events/stream       frames on the response stream of the request (`services.event_streams`)
    events/subscribe    webhooks of origin mcp (`services.event_subscriptions`)

`protocol.mcp_events.endpoint` checks the requests and makes the results; this module connects it to the services. No method
requires that the client declares the extension, and none requires the header `Mcp-Name`, which real clients do not send.

A stream carries no SSE comments: its heartbeats keep it open (`COMMENTS_OMITTED_KEY`). A legacy client that closes its request
ends its stream, as a modern one does.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from functools import lru_cache, partial
from typing import Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from ringback.domain import errors
from ringback.domain.cursor import encode_log_position
from ringback.domain.event import Event
from ringback.mcp_server.event_types import build_own_descriptors, to_event_filter
from ringback.mcp_server.gateway import Capabilities, Era, Feature, Gateway, MethodBinding, Result
from ringback.mcp_server.jsonrpc_errors import to_mcp_error
from ringback.mcp_server.request_context import COMMENTS_OMITTED_KEY, RequestContext
from ringback.mcp_server.session_notifications import send_to_request
from ringback.mcp_server.tool_advice import name_tools
from ringback.protocol.mcp_events import errors as event_errors
from ringback.protocol.mcp_events.backend import (
    Interest,
    OccurrencePage,
    SubscriptionGrant,
    SubscriptionKey,
    SubscriptionRequest,
)
from ringback.protocol.mcp_events.descriptors import EventDescriptor
from ringback.protocol.mcp_events.endpoint import HEARTBEAT_SECONDS, EndpointPolicy, EventEndpoint
from ringback.protocol.mcp_events.errors import ErrorProfile, EventError, EventErrorName
from ringback.protocol.mcp_events.names import EVENTS_EXTENSION, EventMethod, advertise_events
from ringback.protocol.mcp_events.occurrence import EventOccurrence
from ringback.services.event_polls import EventRequest
from ringback.services.event_streams import StreamPage
from ringback.waits import wait_first


class EventParams(types.RequestParams):
    """Any params: the endpoint validates the raw ones, so that its errors have their names."""

    model_config = ConfigDict(extra="allow")


def build_feature(gateway: Gateway) -> Feature:
    methods = EventMethods(gateway)
    handlers: Mapping[EventMethod, Callable[[RequestContext], Awaitable[Result]]] = {
        EventMethod.LIST: methods.list_events,
        EventMethod.POLL: methods.poll_events,
        EventMethod.STREAM: methods.stream_events,
        EventMethod.SUBSCRIBE: methods.subscribe,
        EventMethod.UNSUBSCRIBE: methods.unsubscribe,
    }
    return Feature(
        methods=[MethodBinding(method, EventParams, _with_event_errors(handle)) for method, handle in handlers.items()],
        advertise_capabilities=_advertise_events,
    )


class EventMethods:
    """The five methods, with the raw params of the request."""

    def __init__(self, gateway: Gateway) -> None:
        policy = EndpointPolicy[RequestContext](
            get_principal=lambda context: context.caller.principal,
            find_argument_error=lambda descriptor, arguments: gateway.find_argument_error(
                descriptor.input_schema, arguments
            ),
            find_url_error=gateway.find_callback_url_error,
            wait_seconds_max=gateway.config.wait_seconds_max,
        )
        self._endpoint = EventEndpoint(GatewayEventBackend(gateway), policy)

    async def list_events(self, context: RequestContext) -> Result:
        return await self._endpoint.list_events(context, context.raw_params)

    async def poll_events(self, context: RequestContext) -> Result:
        return await self._endpoint.poll_events(context, context.raw_params)

    async def stream_events(self, context: RequestContext) -> Result:
        context.asgi_state[COMMENTS_OMITTED_KEY] = True
        stream = self._endpoint.stream_events(
            context,
            context.raw_params,
            request_id=context.require_request_id(),
            profile=get_error_profile(context),
            send=partial(send_to_request, context),
        )
        if context.is_modern:
            return await stream  # cancelled when the client disconnects
        return await _run_until_closed(stream, context)

    async def subscribe(self, context: RequestContext) -> Result:
        return await self._endpoint.subscribe(context, context.raw_params, profile=get_error_profile(context))

    async def unsubscribe(self, context: RequestContext) -> Result:
        return await self._endpoint.unsubscribe(context, context.raw_params)


class GatewayEventBackend:
    """Implements `protocol.mcp_events.backend.EventBackend` over the services."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def list_descriptors(self, caller: RequestContext) -> Sequence[EventDescriptor]:
        return _list_own_descriptors(caller.endpoint.upstream)

    async def find_descriptor(self, caller: RequestContext, name: str) -> EventDescriptor | None:
        return next((each for each in _list_own_descriptors(caller.endpoint.upstream) if each.name == name), None)

    def implied_arguments(self, caller: RequestContext, name: str) -> Mapping[str, Any]:  # noqa: ARG002 - part of EventBackend
        return {} if caller.endpoint.upstream is None else {"upstream": caller.endpoint.upstream}

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
        request = EventRequest(event_filter=to_event_filter(interest), cursor=cursor, max_age_seconds=max_age_seconds)
        page = await self._gateway.event_polls.poll_events(
            caller.caller, request, limit=limit, wait_seconds=wait_seconds
        )
        return OccurrencePage(
            occurrences=[to_occurrence(event) for event in page.events],
            cursor=page.cursor,
            truncated=page.is_truncated,
            has_more=page.has_more,
        )

    async def follow_occurrences(
        self, caller: RequestContext, interest: Interest, *, cursor: str | None, max_age_seconds: float | None
    ) -> AsyncGenerator[OccurrencePage]:
        request = EventRequest(event_filter=to_event_filter(interest), cursor=cursor, max_age_seconds=max_age_seconds)
        pages = self._gateway.event_streams.follow_events(caller.caller, request, heartbeat_seconds=HEARTBEAT_SECONDS)
        async with aclosing(pages):
            async for page in pages:
                yield _to_occurrence_page(page)

    async def subscribe(self, caller: RequestContext, request: SubscriptionRequest) -> SubscriptionGrant:
        return await self._gateway.event_subscriptions.subscribe(caller.caller, request)

    async def unsubscribe(self, caller: RequestContext, key: SubscriptionKey) -> None:
        await self._gateway.event_subscriptions.unsubscribe(caller.caller, key)


def to_occurrence(event: Event) -> EventOccurrence:
    """The event as a poll and a stream send it. A webhook's `data` has more members: for its receiver."""
    return EventOccurrence(
        event_id=event.id,
        name=event.name,
        timestamp=event.timestamp,
        data=event.data,
        cursor=encode_log_position(event.position),
    )


def get_error_profile(context: RequestContext) -> ErrorProfile:
    """The codes of the SEP for a request that declares its extension, else those of the design sketch."""
    return ErrorProfile.SEP if context.declares_extension(EVENTS_EXTENSION) else ErrorProfile.SKETCH


def to_event_error(error: errors.RingbackError) -> EventError | None:
    """A refusal of a service by the name that MCP Events has for it; None if it has none."""
    match error:
        case errors.QuotaExceeded():
            limit, maximum = str(error.extra.get("quota", "requests")), error.extra.get("limit")
            return EventError(
                EventErrorName.RESOURCE_EXHAUSTED, name_tools(error.detail), {"limit": limit, "max": maximum}
            )
        case errors.Forbidden() | errors.Unauthenticated():
            return event_errors.forbidden(name_tools(error.detail))
        case errors.InvalidRequest():
            return event_errors.invalid_params(name_tools(error.detail))
        case _:
            return None


@lru_cache(maxsize=256)
def _list_own_descriptors(upstream: str | None) -> Sequence[EventDescriptor]:
    return build_own_descriptors(upstream)


def _to_occurrence_page(page: StreamPage) -> OccurrencePage:
    return OccurrencePage(
        occurrences=[to_occurrence(event) for event in page.events],
        cursor=page.cursor,
        truncated=page.is_truncated,
        error=_STORE_UNAVAILABLE if page.is_store_unavailable else None,
    )


_STORE_UNAVAILABLE: Final = EventError(
    EventErrorName.INTERNAL_ERROR, "The event log cannot be read now. The stream goes on when it can."
)


def _with_event_errors(
    handle: Callable[[RequestContext], Awaitable[Result]],
) -> Callable[[RequestContext, EventParams], Awaitable[Result]]:
    """The handler with its errors as JSON-RPC errors, in the codes that the request asks for."""

    async def handle_request(context: RequestContext, _params: EventParams) -> Result:
        try:
            return await handle(context)
        except EventError as error:
            raise _to_mcp_event_error(error, context) from None
        except errors.RingbackError as error:
            if (named := to_event_error(error)) is None:
                raise to_mcp_error(error) from None
            raise _to_mcp_event_error(named, context) from None

    return handle_request


def _to_mcp_event_error(error: EventError, context: RequestContext) -> MCPError:
    return MCPError(event_errors.error_code(get_error_profile(context), error.name), error.message, error.data)


async def _run_until_closed(stream: Coroutine[Any, Any, Result], context: RequestContext) -> Result:
    """Run the stream of a legacy request until its client closes it: a session does not cancel handlers for that."""
    task = asyncio.create_task(stream)
    await wait_first(task, context.request_closed.wait())
    return {} if task.cancelled() else task.result()


def _advertise_events(_era: Era, capabilities: Capabilities) -> None:
    advertise_events(capabilities, list_changed=True)
