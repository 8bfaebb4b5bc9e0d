"""The HTTP/1.1 server of `ringback listen`: an ASGI receiver on asyncio and httptools, one request for each connection.

The base install has no web server. `ReceiverApp` limits the body; this server limits the headers, the time of a request, and
the number of connections.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

import httptools

from ringback.receiver import ReceiverApp
from ringback.receiver.asgi import BODY_BYTES_MAX, Message

HEAD_BYTES_MAX: Final = 65_536
"""A callback's request line and headers have less than 4 KiB. The service's limit for requests is the same as this."""
REQUEST_SECONDS: Final = 30.0
"""From the connection to the response. Ringback gives an attempt 10 s; other senders give up to 30 s."""
CONNECTIONS_MAX: Final = 128
"""Further connections are closed at once; their senders retry."""
READ_BYTES: Final = 65_536

OnRefused = Callable[[bytes], None]
"""Called with the body of a response whose status is 400 or higher."""


@asynccontextmanager
async def serve_receiver(
    receiver: ReceiverApp, listener: socket.socket, *, on_refused: OnRefused
) -> AsyncGenerator[None]:
    """Serve while the context is open. At its end, accept no more connections and answer the requests in progress."""
    connections: set[asyncio.Task[None]] = set()

    async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(connections) < CONNECTIONS_MAX and (task := asyncio.current_task()) is not None:
            connections.add(task)
            task.add_done_callback(connections.discard)
            with suppress(TimeoutError, OSError):
                async with asyncio.timeout(REQUEST_SECONDS):
                    await _serve_request(receiver, reader, writer, on_refused)
        writer.close()

    server = await asyncio.start_server(serve_connection, sock=listener)
    try:
        yield
    finally:
        server.close()
        if connections:
            await asyncio.wait(connections)


async def _serve_request(
    receiver: ReceiverApp, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_refused: OnRefused
) -> None:
    request = _Request()
    refusal = await _read_request(request, reader)
    response = _Response()
    if refusal is not None:
        response.status = refusal
    elif request.is_complete:
        await receiver(request.build_scope(), request.receive, response.send)
    else:
        return
    if response.status >= HTTPStatus.BAD_REQUEST:
        on_refused(bytes(response.body))
    writer.write(response.encode_response())
    await writer.drain()


async def _read_request(request: "_Request", reader: asyncio.StreamReader) -> HTTPStatus | None:
    """Read until the request is complete or the peer has closed. Returns a status if the request is rejected."""
    parser = httptools.HttpRequestParser(request)
    read_bytes = 0
    while not request.is_complete and (chunk := await reader.read(READ_BYTES)):
        read_bytes += len(chunk)
        try:
            parser.feed_data(chunk)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return HTTPStatus.BAD_REQUEST
        if read_bytes > HEAD_BYTES_MAX and not request.body:
            return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    request.method = parser.get_method().decode("ascii") if request.is_complete else ""
    return None


class _Request:
    """One request, filled by httptools. A body that is too large counts as complete: the receiver responds with 413."""

    def __init__(self) -> None:
        self.method = ""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = bytearray()
        self.is_complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, chunk: bytes) -> None:
        self.body += chunk
        self.is_complete = len(self.body) > BODY_BYTES_MAX

    def on_message_complete(self) -> None:
        self.is_complete = True

    def build_scope(self) -> Message:
        return {"type": "http", "method": self.method, "headers": self.headers}

    async def receive(self) -> Message:
        return {"type": "http.request", "body": bytes(self.body), "more_body": False}


class _Response:
    """The receiver's response, encoded as one HTTP/1.1 response that closes the connection."""

    def __init__(self) -> None:
        self.status = int(HTTPStatus.INTERNAL_SERVER_ERROR)
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = bytearray()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
        else:
            self.body += message.get("body", b"")

    def encode_response(self) -> bytes:
        head = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}".encode(), b"connection: close"]
        head += [name + b": " + value for name, value in self.headers if name != b"content-length"]
        if self.status != HTTPStatus.NO_CONTENT:
            head.append(b"content-length: %d" % len(self.body))
        return b"\r\n".join(head) + b"\r\n\r\n" + bytes(self.body)
