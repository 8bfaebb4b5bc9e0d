"""The HTTP/1.1 server that receives a run's callbacks, on asyncio and httptools: one request for each connection."""

import asyncio
import itertools
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing, suppress
from http import HTTPStatus
from typing import Final

import httptools

from ringback.cli.server_checks.callbacks import CallbackRecorder, CallbackResponse, ReceivedPost, Respond, acknowledge

LOOPBACK: Final = "127.0.0.1"
REQUEST_SECONDS: Final = 30.0
"""From the connection to the response. Senders give an attempt 5 to 30 s."""
REQUEST_BYTES_MAX: Final = 1024 * 1024
"""Four times the largest body of the specification (mcp-events §8), so that a larger one is seen and reported."""
READ_BYTES: Final = 65_536


class CallbackEndpoint:
    def __init__(self, base_url: str, port: int, *, is_public: bool) -> None:
        self.base_url = base_url
        """Of all callbacks, without a slash at its end."""
        self.port = port
        self.is_public = is_public
        """Whether a URL was given that reaches this endpoint from elsewhere."""
        self.connection_count = 0
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
        return CallbackResponse(HTTPStatus.NOT_FOUND) if callback is None else callback.receive(post)


@asynccontextmanager
async def listening_endpoint(port: int, public_url: str | None) -> AsyncGenerator[CallbackEndpoint]:
    """Listen on this port of the loopback address; 0 chooses a free one."""
    endpoint: CallbackEndpoint | None = None
    connections: set[asyncio.Task[None]] = set()

    async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if endpoint is not None and (task := asyncio.current_task()) is not None:
            endpoint.connection_count += 1
            connections.add(task)
            task.add_done_callback(connections.discard)
            # Python 3.11's streams log a cancelled connection as an error.
            with closing(writer), suppress(TimeoutError, OSError, asyncio.CancelledError):
                async with asyncio.timeout(REQUEST_SECONDS):
                    await _serve_request(endpoint, reader, writer)

    server = await asyncio.start_server(serve_connection, LOOPBACK, port)
    port = server.sockets[0].getsockname()[1]
    base_url = (public_url or f"http://{LOOPBACK}:{port}").rstrip("/")
    endpoint = CallbackEndpoint(base_url, port, is_public=public_url is not None)
    try:
        yield endpoint
    finally:
        server.close()
        await asyncio.sleep(0)  # a connection that was accepted in this turn has its task in the next one
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _serve_request(
    endpoint: CallbackEndpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    request = _Request()
    parser = httptools.HttpRequestParser(request)
    while not request.is_complete and (chunk := await reader.read(READ_BYTES)):
        try:
            parser.feed_data(chunk)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return
        if len(request.body) > REQUEST_BYTES_MAX:
            return
    if not request.is_complete:
        return
    post = ReceivedPost(
        method=parser.get_method().decode("ascii"),
        target=request.target.decode("ascii", "replace"),
        headers=tuple(request.headers),
        body=bytes(request.body),
        at=asyncio.get_running_loop().time(),
    )
    writer.write(_encode(endpoint.receive(post)))
    await writer.drain()


class _Request:
    """One request, filled by httptools."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[str, str]] = []
        self.body = bytearray()
        self.is_complete = False

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_body(self, chunk: bytes) -> None:
        self.body += chunk

    def on_message_complete(self) -> None:
        self.is_complete = True


def _encode(response: CallbackResponse) -> bytes:
    status = HTTPStatus(response.status)
    head = [f"HTTP/1.1 {status.value} {status.phrase}", "connection: close"]
    head += [f"{name}: {value}" for name, value in response.headers.items()]
    if status is not HTTPStatus.NO_CONTENT:
        head.append(f"content-length: {len(response.body)}")
    return "\r\n".join([*head, "", ""]).encode() + response.body
