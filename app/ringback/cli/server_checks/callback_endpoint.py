"""The endpoint that receives the callbacks of a run: it records each request, and responds as its case says."""

import asyncio
import itertools
import os
import secrets
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

from ringback.cli.http_connections import Header, InvalidHttpRequest, accept_connections, encode_response, read_request
from ringback.cli.server_checks.callbacks import CallbackRecorder, CallbackResponse, ReceivedPost, Respond, acknowledge
from ringback.cli.server_checks.cases import ImpossibleRun

LOOPBACK: Final = "127.0.0.1"
REQUEST_BYTES_MAX: Final = 1024 * 1024
"""Four times the largest body of the specification (mcp-events §8), so that a larger one is seen and reported."""
POSTS_MAX: Final = 1000
"""Requests that a run keeps: ten times what a correct server sends. Later ones get 503."""
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of the bodies of these requests."""


class CallbackEndpoint:
    def __init__(self, base_url: str, port: int, *, is_public: bool) -> None:
        self.base_url = base_url
        """Of all callbacks, without a slash at its end."""
        self.port = port
        self.is_public = is_public
        """Whether a URL was given that reaches this endpoint from elsewhere."""
        self.unreadable_connections = 0
        """Those that brought no request: a TLS client's, for example, because this endpoint speaks HTTP."""
        self._posts_kept = 0
        self._bytes_kept = 0
        self._run = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._callbacks: dict[str, CallbackRecorder] = {}

    def add_callback(self, respond: Respond = acknowledge, *, query: str = "") -> CallbackRecorder:
        """A callback with a URL of its own, which no earlier run had."""
        path = f"/{self._run}/{next(self._numbers)}"
        target = f"{path}?{query}" if query else path
        callback = CallbackRecorder(f"{self.base_url}{target}", target, respond)
        self._callbacks[path] = callback
        return callback

    @property
    def posts(self) -> list[ReceivedPost]:
        """What all callbacks of the run have received."""
        return [post for callback in self._callbacks.values() for post in callback.posts]

    def receive(self, post: ReceivedPost) -> CallbackResponse:
        path = post.target.partition("?")[0]
        callback = next((each for suffix, each in self._callbacks.items() if path.endswith(suffix)), None)
        if callback is None:
            return CallbackResponse(HTTPStatus.NOT_FOUND)
        if self._posts_kept >= POSTS_MAX or self._bytes_kept + len(post.body) > KEPT_BYTES_MAX:
            return CallbackResponse(HTTPStatus.SERVICE_UNAVAILABLE)
        self._posts_kept += 1
        self._bytes_kept += len(post.body)
        return callback.receive(post)


@asynccontextmanager
async def listening_endpoint(port: int, public_url: str | None) -> AsyncGenerator[CallbackEndpoint]:
    """Listen on this port of the loopback address; 0 chooses a free one. Raises `ImpossibleRun` if the port is taken."""
    with _open_listener(port) as listener:
        port = listener.getsockname()[1]
        base_url = (public_url or f"http://{LOOPBACK}:{port}").rstrip("/")
        endpoint = CallbackEndpoint(base_url, port, is_public=public_url is not None)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            post = None
            with suppress(InvalidHttpRequest):
                post = await _read_post(reader)
            if post is None:
                endpoint.unreadable_connections += 1
                return
            response = endpoint.receive(post)
            headers: list[Header] = [(name.encode(), value.encode()) for name, value in response.headers.items()]
            writer.write(encode_response(response.status, headers, response.body))
            await writer.drain()

        async with accept_connections(serve, listener, cancels_open=True):
            yield endpoint


def _open_listener(port: int) -> socket.socket:
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as problem:
        reason = os.strerror(problem.errno or 0).lower()
        raise ImpossibleRun(f"port {port} cannot receive callbacks: {reason}. Give another --callback-port") from None


async def _read_post(reader: asyncio.StreamReader) -> ReceivedPost | None:
    """None if the peer closes before the request ends, or its body is too large. Raises `InvalidHttpRequest`."""
    request = await read_request(reader, body_bytes_max=REQUEST_BYTES_MAX)
    if request is None or len(request.body) > REQUEST_BYTES_MAX:
        return None
    return ReceivedPost(
        method=request.method,
        target=request.target.decode("ascii", "replace"),
        headers=tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers),
        body=bytes(request.body),
        at=asyncio.get_running_loop().time(),
    )
