"""Modern tool calls that are answered by one message, without the SDK's machinery for streams.

For every modern request the SDK starts a task for the handler, a task that notices a disconnect, and a stream between them: a
tenth of the CPU time of a fast call (measured). A call that asks for neither progress nor log messages is answered by one
message. Its handler runs in the task of the HTTP request, and the client sees no difference:

    response within the SDK's ping interval   one JSON body
    later                                     an event stream, which comments keep open, with the response as its event
    the client disconnects                    the handler is cancelled, at the earliest after `ATTEND_AFTER_SECONDS`
"""

import asyncio
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

ATTEND_AFTER_SECONDS: Final = 0.05
"""A call that ends sooner is not watched for a disconnect: cancelling it would save no work."""
_NOTIFICATION_KEYS: Final = (b"progressToken", b"/logLevel")
"""The `_meta` keys with which a request asks for notifications. One in an argument has the SDK's way as its only effect."""
_STREAM_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
)
"""As the SDK sends them."""


def is_modern_tool_call(scope: Scope) -> bool:
    """Whether the headers name a modern tools/call of a client that accepts a JSON body and an event stream."""
    headers = Headers(scope=scope)
    return (
        scope["method"] == "POST"
        and headers.get(MCP_METHOD_HEADER) == "tools/call"
        and headers.get(MCP_PROTOCOL_VERSION_HEADER) in MODERN_PROTOCOL_VERSIONS
        and all(check_accept_headers(Request(scope)))
    )


def asks_for_notifications(body: bytes) -> bool:
    return any(key in body for key in _NOTIFICATION_KEYS)


async def send_single_response(
    app: Server[Any], lifespan_state: Any, scope: Scope, receive: Receive, send: Send
) -> None:
    """Handle a modern tools/call that asks for no notifications."""
    response, attendants = _LateStream(send), list[asyncio.Task[None]]()
    with anyio.CancelScope() as request_scope:

        def attend() -> None:
            attendants.append(asyncio.create_task(response.keep_open()))
            attendants.append(asyncio.create_task(_cancel_at_disconnect(receive, request_scope)))

        timer = asyncio.get_running_loop().call_later(ATTEND_AFTER_SECONDS, attend)
        try:
            # Without security settings, which `HostOriginMiddleware` replaces, and for a JSON body.
            await sdk.handle_modern_request(app, None, True, lifespan_state, scope, receive, response)  # noqa: FBT003
        finally:
            timer.cancel()
            for task in attendants:
                task.cancel()


def make_body_receive(body: bytes, receive: Receive) -> Receive:
    """Receive this body, then what `receive` has next."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_body() -> Message:
        return messages.pop() if messages else await receive()

    return receive_body


async def _cancel_at_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class _LateStream:
    """Passes a JSON response on, or sends it as the event of a stream that was opened because it took long."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_started = False
        self._is_stream = False
        self._lock = asyncio.Lock()

    async def __call__(self, message: Message) -> None:
        self._has_started = True
        if not self._is_stream:
            await self._send(message)
        elif message["type"] == "http.response.body":
            async with self._lock:
                event = b"event: message\r\ndata: %b\r\n\r\n" % message["body"]
                await self._send({"type": "http.response.body", "body": event, "more_body": False})

    async def keep_open(self) -> None:
        """Open the stream after the SDK's interval, and send a comment at each interval, until cancelled."""
        while True:
            await asyncio.sleep(sdk._SSE_PING_INTERVAL)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - it has no other name
            async with self._lock:
                if not self._is_stream:
                    if self._has_started:
                        return
                    self._is_stream = True
                    await self._send({"type": "http.response.start", "status": 200, "headers": list(_STREAM_HEADERS)})
                await self._send_comment()

    async def _send_comment(self) -> None:
        await self._send({"type": "http.response.body", "body": b": ping\r\n\r\n", "more_body": True})
