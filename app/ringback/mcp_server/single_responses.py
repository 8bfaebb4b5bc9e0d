"""Responses to modern tool calls: one JSON body, or an event stream as soon as the client has to wait.

    before the wait for a stored call         one JSON body, whose HTTP status says what is wrong with the request
    within `ATTEND_AFTER_SECONDS` of it       one JSON body
    later                                     an event stream, which comments keep open, with the response as its event; but
                                              not while the end of the call is committed, for `COMMIT_SECONDS_MAX`
    the client disconnects                    the handler is cancelled, at the earliest after `ATTEND_AFTER_SECONDS`

The SDK opens the stream only with the first notification, or after 15 seconds. Until then a client has no part of a response.
If its connection breaks then, because Ringback is killed or restarted, the SDK 2.x for Python ends the whole client, with all
its other requests. If the stream is open, only this request fails, and the same client can look for its call.

For every modern request the SDK starts a task for the handler, a task that notices a disconnect, and a stream between them: a
tenth of the CPU time of a fast call (measured). A call that asks for neither progress nor log messages is answered by one
message, so its handler runs in the task of the HTTP request (`modern_calls`).
"""

import asyncio
from collections.abc import Callable, Coroutine, MutableMapping
from typing import Any, Final, NamedTuple

import anyio
from mcp.server import _streamable_http_modern as sdk
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from ringback.waits import run_with_helper

AsgiHandler = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]
ATTEND_AFTER_SECONDS: Final = 0.05
"""A call that ends sooner gets a JSON body, and is not watched for a disconnect: cancelling it would save no work.

On a stream, an error of the upstream has not the HTTP status of its code (400 for -32021). So the time counts from the moment
at which the stored call goes to its upstream, and neither the commit before that nor the one that ends the call counts. A later
stream would be worse: the SDK's client ends with all its requests if Ringback is killed before.
"""
COMMIT_SECONDS_MAX: Final = 1.0
"""How long a response whose outcome is known waits for its commit without a stream. A store may be away for hours."""
_NOTIFICATION_KEYS: Final = (b"progressToken", b"/logLevel")
"""The `_meta` keys with which a request asks for notifications. One in an argument has the SDK's way as its only effect."""
STREAM_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
)
"""As the SDK sends them."""
_WAIT_BEGUN_KEY: Final = "ringback.wait_begun"
"""The key in the ASGI scope's state of the future that `note_wait` resolves."""


class _BegunWait(NamedTuple):
    began_at: float
    """Loop time."""
    has_outcome: Callable[[], bool]


def note_wait(state: MutableMapping[str, Any], *, has_outcome: Callable[[], bool] = lambda: False) -> None:
    """The call of this request is stored, and its client waits for the response: a stream may open, with the HTTP status 200.

    `has_outcome` says whether the response only waits for its commit.
    """
    wait_begun: asyncio.Future[_BegunWait] | None = state.get(_WAIT_BEGUN_KEY)
    if wait_begun is not None and not wait_begun.done():
        wait_begun.set_result(_BegunWait(wait_begun.get_loop().time(), has_outcome))


def is_modern_tool_call(scope: Scope) -> bool:
    """Whether the headers name a modern tools/call. Its client accepts both forms of responses (`incoming_messages`)."""
    headers = Headers(scope=scope)
    return (
        scope["method"] == "POST"
        and headers.get(MCP_METHOD_HEADER) == "tools/call"
        and headers.get(MCP_PROTOCOL_VERSION_HEADER) in MODERN_PROTOCOL_VERSIONS
    )


def asks_for_notifications(body: bytes) -> bool:
    return any(key in body for key in _NOTIFICATION_KEYS)


async def send_single_response(handle: AsgiHandler, scope: Scope, receive: Receive, send: Send) -> None:
    """Let `handle` respond, with one JSON body, to a modern tools/call that asks for no notifications."""
    response, attendants = _LateStream(scope, send), list[asyncio.Task[None]]()
    with anyio.CancelScope() as request_scope:

        def attend() -> None:
            attendants.append(asyncio.create_task(response.keep_open()))
            attendants.append(asyncio.create_task(cancel_at_disconnect(receive, request_scope)))

        timer = asyncio.get_running_loop().call_later(ATTEND_AFTER_SECONDS, attend)
        try:
            await handle(scope, receive, response)
        finally:
            timer.cancel()
            for task in attendants:
                task.cancel()


async def send_streamed_response(handle: AsgiHandler, scope: Scope, receive: Receive, send: Send) -> None:
    """Let `handle` respond to a modern tools/call that asks for notifications, as it does in the SDK."""
    response = _LateStream(scope, send)
    await run_with_helper(handle(scope, receive, response), response.keep_open_later())


def make_body_receive(body: bytes, receive: Receive) -> Receive:
    """Receive this body, then what `receive` has next."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_body() -> Message:
        return messages.pop() if messages else await receive()

    return receive_body


async def cancel_at_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class _LateStream:
    """Passes a response on, or sends it on a stream that was opened because it took long."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        self._has_started = False
        self._is_stream = False
        self._is_json = True
        """Whether the handler has made one JSON body, and not a stream of its own."""
        self._lock = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._wait_begun: asyncio.Future[_BegunWait] = self._loop.create_future()
        scope["state"][_WAIT_BEGUN_KEY] = self._wait_begun

    async def __call__(self, message: Message) -> None:
        self._has_started = True
        if not self._is_stream:
            await self._send(message)
        elif message["type"] == "http.response.start":
            self._is_json = (b"content-type", b"text/event-stream") not in message["headers"]
        else:
            async with self._lock:
                await self._send(to_last_event(message) if self._is_json else message)

    async def keep_open_later(self) -> None:
        await asyncio.sleep(ATTEND_AFTER_SECONDS)
        await self.keep_open()

    async def keep_open(self) -> None:
        """Open the stream when the wait has begun, and send a comment at each interval of the SDK, until cancelled."""
        interval_seconds: float = sdk._SSE_PING_INTERVAL  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - it has no other name
        await asyncio.wait([self._wait_begun], timeout=interval_seconds)
        if self._wait_begun.done():
            await self._let_call_end(self._wait_begun.result())
        while not self._has_started or self._is_stream:
            async with self._lock:
                if not self._is_stream:
                    self._is_stream = True
                    await self._send({"type": "http.response.start", "status": 200, "headers": list(STREAM_HEADERS)})
                await self._send_comment()
            await asyncio.sleep(interval_seconds)

    async def _let_call_end(self, wait: _BegunWait) -> None:
        """Return when the call has had its time. If it is about to end, this is cancelled at its end."""
        await asyncio.sleep(wait.began_at + ATTEND_AFTER_SECONDS - self._loop.time())
        if wait.has_outcome():
            await asyncio.sleep(COMMIT_SECONDS_MAX)

    async def _send_comment(self) -> None:
        await self._send({"type": "http.response.body", "body": b": ping\r\n\r\n", "more_body": True})


def to_last_event(message: Message) -> Message:
    """The JSON body of a response as the last event of a stream."""
    event = b"event: message\r\ndata: %b\r\n\r\n" % message["body"]
    return {"type": "http.response.body", "body": event, "more_body": False}
