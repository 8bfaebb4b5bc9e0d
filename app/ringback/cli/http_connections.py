"""The HTTP/1.1 of `listen`, `check-server` and `upstreams login`, on asyncio and httptools: one request for each connection.

The base install has no web server. What a request means is decided by the caller; this module limits the time of a request, its
headers, its body and the number of connections.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, closing, suppress
from http import HTTPStatus
from typing import Final

import httptools

HEAD_BYTES_MAX: Final = 65_536
"""A callback's request line and headers have less than 4 KiB. The service's limit for requests is the same as this."""
REQUEST_SECONDS: Final = 30.0
"""From the connection to the response. Ringback gives an attempt 10 s; other senders give 5 to 30 s."""
CONNECTIONS_MAX: Final = 128
"""Further connections are closed at once; their senders retry."""
READ_BYTES: Final = 65_536

Header = tuple[bytes, bytes]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class InvalidHttpRequest(Exception):
    """The request is not HTTP, or its headers are too large. It has the status of the response."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class ReceivedRequest:
    """One request. httptools calls its methods `on_…`."""

    def __init__(self, *, body_bytes_max: int) -> None:
        self.target = b""
        """The path and the query, as received."""
        self.headers: list[Header] = []
        """Names are in lower case."""
        self.body = bytearray()
        """A body that is larger than the maximum is not read to its end."""
        self.is_complete = False
        self._body_bytes_max = body_bytes_max
        self._parser = httptools.HttpRequestParser(self)

    @property
    def method(self) -> str:
        return self._parser.get_method().decode("ascii")

    def feed(self, received: bytes) -> None:
        """Parse the next bytes. Raises `InvalidHttpRequest`."""
        try:
            self._parser.feed_data(received)
        except httptools.HttpParserError:
            raise InvalidHttpRequest(HTTPStatus.BAD_REQUEST) from None
        except httptools.HttpParserUpgrade as offered:
            self._ignore_upgrade(received[offered.args[0] :])

    def _ignore_upgrade(self, body: bytes) -> None:
        """Parse the request as one without this header, behind which httptools parses no body.

        A server may ignore it (RFC 9110 §7.8). Java's client offers HTTP/2 so with each request.
        """
        if self.method == "CONNECT":  # httptools treats it as an upgrade
            raise InvalidHttpRequest(HTTPStatus.BAD_REQUEST)
        lines = [f"{self.method} ".encode() + self.target + b" HTTP/1.1"]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        self.target, self.headers, self.is_complete = b"", [], False
        self._parser = httptools.HttpRequestParser(self)
        self.feed(b"\r\n".join([*lines, b"", body]))

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, chunk: bytes) -> None:
        self.body += chunk
        self.is_complete = len(self.body) > self._body_bytes_max

    def on_message_complete(self) -> None:
        self.is_complete = True


@asynccontextmanager
async def accept_connections(
    serve: Serve, listener: socket.socket, *, cancels_open: bool = False
) -> AsyncGenerator[None]:
    """Serve each connection for at most `REQUEST_SECONDS` while the context is open.

    At its end, accept no more connections, and wait for the open ones or cancel them.
    """
    connections: set[asyncio.Task[None]] = set()

    async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Python 3.11's streams log a cancelled connection as an error.
        with closing(writer), suppress(TimeoutError, OSError, asyncio.CancelledError):
            if len(connections) < CONNECTIONS_MAX and (task := asyncio.current_task()) is not None:
                connections.add(task)
                task.add_done_callback(connections.discard)
                async with asyncio.timeout(REQUEST_SECONDS):
                    await serve(reader, writer)

    server = await asyncio.start_server(serve_connection, sock=listener)
    try:
        yield
    finally:
        server.close()
        await asyncio.sleep(0)  # a connection that was accepted in this turn has its task in the next one
        if cancels_open:
            for connection in connections:
                connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader, *, body_bytes_max: int) -> ReceivedRequest | None:
    """The request, or None if the peer closes before its end. Raises `InvalidHttpRequest`."""
    request = ReceivedRequest(body_bytes_max=body_bytes_max)
    read_bytes = 0
    while not request.is_complete and (chunk := await reader.read(READ_BYTES)):
        read_bytes += len(chunk)
        request.feed(chunk)
        if read_bytes > HEAD_BYTES_MAX and not request.body:
            raise InvalidHttpRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    return request if request.is_complete else None


def encode_response(status: int, headers: Iterable[Header], body: bytes) -> bytes:
    """A response that closes the connection. Its length is that of the body, whatever the headers say."""
    head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode(), b"connection: close"]
    head += [name + b": " + value for name, value in headers if name != b"content-length"]
    if status != HTTPStatus.NO_CONTENT:
        head.append(b"content-length: %d" % len(body))
    return b"\r\n".join(head) + b"\r\n\r\n" + body
