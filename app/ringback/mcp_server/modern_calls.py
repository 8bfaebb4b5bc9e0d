"""Handles a modern tools/call without the SDK's layers around the handler.

    message ▸ JSON-RPC request ▸ headers and envelope agree ▸ MethodDispatcher ▸ one JSON body

The SDK's own functions check the request. If they object to anything, the SDK handles the whole request, and its response says
what is wrong. For each request the SDK also composes middlewares that serve only the handshake, unwinds an empty exit stack and
copies the result through a model: a tenth of the CPU time of a fast call (measured).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

from mcp.server import _streamable_http_modern as sdk
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.runner import modern_error_data
from mcp.server.session import ServerSession
from mcp.shared.inbound import (
    InboundLadderRejection,
    InboundModernRoute,
    classify_inbound_request,
    find_duplicated_routing_header,
)
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import JSONRPCError, JSONRPCRequest, RequestId, RequestParams
from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from ringback.domain import jsontext
from ringback.mcp_server.gateway import Result
from ringback.mcp_server.incoming_messages import get_message

CallHandler = Callable[[ServerRequestContext[Any, Any]], Awaitable[Result]]
_CONTENT_TYPE: Final = "application/json"
_PARAM_PREFIX: Final = "mcp-param-"
_TRANSPORT_KIND: Final = "streamable-http"


async def handle_modern_call(
    app: Server[Any], handle: CallHandler, lifespan_state: Any, body: bytes, scope: Scope, receive: Receive, send: Send
) -> None:
    """Handle a modern tools/call that asks for no notifications, and send its response as one JSON body."""
    context = await _read_call(app, lifespan_state, Request(scope, receive))
    if context is None:
        # Without security settings, which `HeaderCheckMiddleware` replaces, and for a JSON body.
        await sdk.handle_modern_request(app, None, True, lifespan_state, scope, _receive(body), send)  # noqa: FBT003 - the SDK names none
        return
    request_id = cast("RequestId", context.request_id)
    try:
        result = await handle(context)
        message = jsontext.dumps({"jsonrpc": "2.0", "id": request_id, "result": result})
    except Exception as error:  # noqa: BLE001 - the boundary between handlers and the protocol, as in the SDK
        failure = JSONRPCError(jsonrpc="2.0", id=request_id, error=modern_error_data(error))
        await sdk._write(failure, scope, receive, send)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - no other name
        return
    headers = [(b"content-length", b"%d" % len(message)), (b"content-type", _CONTENT_TYPE.encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": message})


async def _read_call(app: Server[Any], lifespan_state: Any, request: Request) -> ServerRequestContext[Any, Any] | None:
    """The request as its handler gets it; None if the SDK objects to it."""
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.scope["headers"]]
    message = _read_request(request, headers)
    if message is None:
        return None
    named = {"method": message.method, "params": message.params}
    route = classify_inbound_request(
        named, headers=dict(reversed(headers))
    )  # the first of each name, as the SDK reads it
    if isinstance(route, InboundLadderRejection):
        return None
    if _may_violate_schema(message, headers):
        rejection = await sdk._mcp_param_rejection(app, request, message, route, lifespan_state)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - no other name
        if rejection is not None:
            return None
    try:
        return _build_context(message, route, lifespan_state, request)
    except ValidationError:
        return None


def _read_request(request: Request, headers: Sequence[tuple[str, str]]) -> JSONRPCRequest | None:
    if find_duplicated_routing_header(headers) is not None:
        return None
    try:
        return JSONRPCRequest.model_validate(get_message(request.scope))
    except ValidationError:
        return None


def _may_violate_schema(message: JSONRPCRequest, headers: Sequence[tuple[str, str]]) -> bool:
    """Whether the SDK compares headers with arguments: there is one or the other."""
    arguments = None if message.params is None else message.params.get("arguments")
    return bool(arguments) or any(name.startswith(_PARAM_PREFIX) for name, _ in headers)


def _build_context(
    message: JSONRPCRequest, route: InboundModernRoute, lifespan_state: Any, request: Request
) -> ServerRequestContext[Any, Any]:
    params = message.params or {}
    meta = RequestParams.model_validate({"_meta": params["_meta"]}, by_name=False).meta
    connection = Connection.from_envelope(route.protocol_version, route.client_info, route.client_capabilities)
    exchange = sdk._SingleExchangeDispatchContext(  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - no other name
        transport=TransportContext(kind=_TRANSPORT_KIND, can_send_request=False, headers=request.headers),
        request_id=message.id,
        message_metadata=ServerMessageMetadata(request_context=request),
    )
    return ServerRequestContext(
        session=ServerSession(exchange, connection, request_meta=meta),
        lifespan_context=lifespan_state,
        protocol_version=route.protocol_version,
        method=message.method,
        params=message.params,
        request_id=message.id,
        meta=meta,
        request=request,
    )


def _receive(body: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
