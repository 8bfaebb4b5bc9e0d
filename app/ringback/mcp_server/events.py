"""MCP Events: events/list, poll, stream, subscribe and unsubscribe over the event log, in both eras.

`protocol.mcp_events.endpoint` checks the requests and makes the results and frames; `event_backend` connects it to services. No
method requires that the client declares the extension, and none requires the header `Mcp-Name`, which real clients do not
send. A request that declares the extension gets the error codes of SEP-3415, every other one those of the design sketch.

A stream has no SSE comments: its heartbeats keep it open (`COMMENTS_OMITTED_KEY`). A legacy client that closes its request ends
its stream, as a modern one does. If it comes back for the lost response (`Last-Event-ID`), its request is handled again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from ringback.domain.errors import RingbackError
from ringback.mcp_server.direct_streams import find_direct_stream
from ringback.mcp_server.event_backend import GatewayEventBackend
from ringback.mcp_server.gateway import Capabilities, Era, Feature, Gateway, MethodBinding, Result
from ringback.mcp_server.request_context import COMMENTS_OMITTED_KEY, RequestContext
from ringback.mcp_server.session_notifications import send_to_request
from ringback.mcp_server.tool_advice import name_tools
from ringback.protocol.mcp_events.endpoint import EndpointPolicy, EventEndpoint
from ringback.protocol.mcp_events.errors import ErrorProfile, EventError, error_code
from ringback.protocol.mcp_events.names import EVENTS_EXTENSION, EventMethod, advertise_events
from ringback.services.events.event_errors import to_event_error
from ringback.services.limits.schema_checks import INTERESTS_REFUSED
from ringback.waits import wait_first


class GatewayEventParams(types.RequestParams):
    """Any params: the endpoint validates the raw ones, so that its errors have their names."""

    model_config = ConfigDict(extra="allow")


def build_feature(gateway: Gateway) -> Feature:
    methods = GatewayEventMethods(gateway)
    handlers: Mapping[EventMethod, Callable[[RequestContext], Awaitable[Result]]] = {
        EventMethod.LIST: methods.list_events,
        EventMethod.POLL: methods.poll_events,
        EventMethod.STREAM: methods.stream_events,
        EventMethod.SUBSCRIBE: methods.subscribe,
        EventMethod.UNSUBSCRIBE: methods.unsubscribe,
    }
    return Feature(
        methods=[
            MethodBinding(str(method), GatewayEventParams, _with_event_errors(handle))
            for method, handle in handlers.items()
        ],
        advertise_capabilities=_advertise_events,
    )


class GatewayEventMethods:
    """The five methods, with the raw params of the request."""

    def __init__(self, gateway: Gateway) -> None:
        policy = EndpointPolicy[RequestContext](
            get_principal=lambda context: context.caller.principal,
            find_argument_error=lambda descriptor, arguments: gateway.find_argument_error(
                descriptor.input_schema, arguments
            ),
            measure_check=lambda context: gateway.check_limiter.measure_check(
                context.caller.principal, INTERESTS_REFUSED
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
        direct = find_direct_stream(context.asgi_state)
        stream = self._endpoint.stream_events(
            context,
            context.raw_params,
            request_id=context.require_request_id(),
            profile=get_error_profile(context),
            send=partial(send_to_request, context) if direct is None else direct.send_notification,
        )
        if context.is_modern:
            return await stream  # cancelled when the client disconnects
        return await _run_until_closed(stream, context)

    async def subscribe(self, context: RequestContext) -> Result:
        return await self._endpoint.subscribe(context, context.raw_params, profile=get_error_profile(context))

    async def unsubscribe(self, context: RequestContext) -> Result:
        return await self._endpoint.unsubscribe(context, context.raw_params)


def get_error_profile(context: RequestContext) -> ErrorProfile:
    """The codes of the SEP for a request that declares its extension, else those of the design sketch."""
    return ErrorProfile.SEP if context.declares_extension(EVENTS_EXTENSION) else ErrorProfile.SKETCH


def _with_event_errors(
    handle: Callable[[RequestContext], Awaitable[Result]],
) -> Callable[[RequestContext, GatewayEventParams], Awaitable[Result]]:
    """The handler with its errors as JSON-RPC errors, in the codes that the request asks for."""

    async def handle_request(context: RequestContext, _params: GatewayEventParams) -> Result:
        try:
            return await handle(context)
        except EventError as error:
            raise _to_mcp_event_error(error, context) from None
        except RingbackError as error:
            raise _to_mcp_event_error(to_event_error(error), context) from None

    return handle_request


def _to_mcp_event_error(error: EventError, context: RequestContext) -> MCPError:
    code = error_code(get_error_profile(context), error.name)
    return MCPError(code, name_tools(error.message), error.data)


async def _run_until_closed(stream: Coroutine[Any, Any, Result], context: RequestContext) -> Result:
    """Run the stream of a legacy request until its client closes it: a session does not cancel handlers for that."""
    task = asyncio.create_task(stream)
    await wait_first(task, context.request_closed.wait())
    return {} if task.cancelled() else task.result()


def _advertise_events(_era: Era, capabilities: Capabilities) -> None:
    advertise_events(capabilities, list_changed=True)
