"""The HTTP/1.1 server of `ringback listen`: one ASGI receiver, on asyncio and httptools, one request a connection.

A web server would do as well, but the client's install has none, and a receiver of callbacks needs no more than this. The
receiver bounds the body; this bounds the head, the time of a request, and the number of connections.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

import httptools

from ringback.receiver.app import BODY_BYTES_MAX, Message, ReceiverApp

HEAD_BYTES_MAX: Final = 65_536
"""The request line and headers of a callback have less than 4 KiB; the service's own limit for requests is the same."""
REQUEST_SECONDS: Final = 30.0
"""From the connection to the response. Ringback gives an attempt 10 s; other senders give up to 30 s."""
CONNECTIONS_MAX: Final = 128
"""Further connections are closed at once; their senders try again."""
READ_BYTES: Final = 65_536

OnRefused = Callable[[bytes], None]
"""Called with the body of a response whose status is 400 or higher."""


@asynccontextmanager
async def serve_receiver(
    receiver: ReceiverApp, listener: socket.socket, *, on_refused: OnRefused
) -> AsyncGenerator[None]:
    """Serve while the context is open. At its end no connection is accepted, and the requests in progress are answered."""
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
    """Read until the request is complete, the peer has closed, or a bound is reached; the status of a refusal."""
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
    """What httptools reads of one request. A body that is too large counts as complete: the receiver then answers 413."""

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
    """What the receiver sends, as one HTTP/1.1 response that closes the connection."""

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
