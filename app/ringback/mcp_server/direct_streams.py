"""Streams of modern events/stream requests: frames go to the connection without the layers of the SDK.

The SDK starts two tasks and a stream between them for every modern request, and serializes each notification through a model.
Thousands of idle streams send nothing but heartbeats, of which each cost 480 µs that way (measured). Here the handler runs in
the task of the HTTP request, and a frame is one write:

    first frame                      the head of an event stream, and the frame
    later frames                     one SSE event each; a client that reads slowly makes its stream wait
    an error before the first frame  the SDK's JSON body with its HTTP status
    the result at the end            the last SSE event
    the client disconnects           the handler is cancelled
"""

import asyncio
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import anyio
from mcp.server import _streamable_http_modern as sdk
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import check_accept_headers
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from ringback.domain import jsontext
from ringback.mcp_server.single_responses import (
    STREAM_HEADERS,
    cancel_at_disconnect,
    make_body_receive,
    to_last_event,
)
from ringback.protocol.mcp_events.names import EventMethod

_DIRECT_STREAM_KEY: Final = "ringback.direct_stream"
"""The key of the request's `DirectStream` in the ASGI scope's state."""


class DirectStream:
    """The response to one request: first frames of its handler, then what the SDK makes of the handler's result."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_started = False

    async def send_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a frame; waits for a client that reads slowly."""
        if not self._has_started:
            self._has_started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": list(STREAM_HEADERS)})
        text = jsontext.dumps({"jsonrpc": "2.0", "method": method, "params": params})
        frame = b"event: message\r\ndata: %b\r\n\r\n" % text
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})

    async def __call__(self, message: Message) -> None:
        if not self._has_started:
            await self._send(message)
        elif message["type"] == "http.response.body":
            await self._send(to_last_event(message))


def find_direct_stream(state: MutableMapping[str, Any]) -> DirectStream | None:
    """The stream that `serve_direct_stream` made for this request; None if the SDK serves it."""
    return state.get(_DIRECT_STREAM_KEY)


def is_modern_stream_request(scope: Scope) -> bool:
    """Whether the headers name a modern events/stream of a client that accepts a JSON body and an event stream."""
    headers = Headers(scope=scope)
    return (
        scope["method"] == "POST"
        and headers.get(MCP_METHOD_HEADER) == EventMethod.STREAM
        and headers.get(MCP_PROTOCOL_VERSION_HEADER) in MODERN_PROTOCOL_VERSIONS
        and all(check_accept_headers(Request(scope)))
    )


async def serve_direct_stream(
    app: Server[Any], lifespan_state: Any, scope: Scope, receive: Receive, send: Send
) -> None:
    scope["state"][_DIRECT_STREAM_KEY] = stream = DirectStream(send)
    body = await Request(scope, receive).body()
    with anyio.CancelScope() as request_scope:
        attendant = asyncio.create_task(cancel_at_disconnect(receive, request_scope))
        try:
            await sdk.handle_modern_request(
                app,
                None,  # `HeaderCheckMiddleware` replaces the security settings
                True,  # noqa: FBT003 - a JSON body, if there was no frame
                lifespan_state,
                scope,
                make_body_receive(body, receive),
                stream,
            )
        finally:
            attendant.cancel()
