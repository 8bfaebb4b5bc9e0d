"""Receivers of callbacks on real sockets: correct, hostile, and over TLS.

    async with serve(answering(NO_CONTENT)) as receiver:
        ... POST to receiver.url("/hook") ...
        assert receiver.requests[0].body == b"{}"

A behaviour is an async function over one accepted connection. All of them listen on 127.0.0.1 and end with their test.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import trustme

from tests.support.limits import WAIT_SECONDS
from tests.support.listeners import stop_listening

NO_CONTENT: Final = b"HTTP/1.1 204 No Content\r\n\r\n"
BYTE_INTERVAL_SECONDS: Final = 0.01
"""Between two bytes of a slow receiver: far below any read timeout, so that only the deadline of the attempt ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRequest:
    """A request as it came over the wire; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Receiver:
    port: int = 0
    scheme: str = "http"
    connections: int = 0
    requests: list[ReceivedRequest] = field(default_factory=list[ReceivedRequest])
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_for_requests(self, count: int, *, within_seconds: float = WAIT_SECONDS) -> list[ReceivedRequest]:
        """Wait for `count` requests, and return them."""
        async with asyncio.timeout(within_seconds):
            while len(self.requests) < count:
                self.arrived.clear()
                await self.arrived.wait()
        return self.requests

    def url(self, path: str = "/hook", *, host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"


@dataclass(frozen=True, slots=True)
class AcceptedConnection:
    """One accepted connection, in a behaviour's hands."""

    receiver: Receiver
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self) -> ReceivedRequest | None:
        """Read the next request and record it in `receiver.requests`; None if the client has disconnected."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        request = await self._parse(head.decode("latin-1"))
        self.receiver.requests.append(request)
        self.receiver.arrived.set()
        return request

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def send_slowly(self, data: bytes) -> None:
        for byte in data:
            await self.send(bytes([byte]))
            await asyncio.sleep(BYTE_INTERVAL_SECONDS)

    def reset(self) -> None:
        """Send RST instead of FIN."""
        connected: socket.socket = self.writer.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def _parse(self, head: str) -> ReceivedRequest:
        request_line, *lines = head.rstrip("\r\n").split("\r\n")
        method, path, _ = request_line.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return ReceivedRequest(method=method, path=path, headers=headers, body=body)


Behaviour = Callable[[AcceptedConnection], Awaitable[None]]


@asynccontextmanager
async def serving_receiver(behaviour: Behaviour, *, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Receiver]:
    receiver = Receiver(scheme="http" if tls is None else "https")
    running: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        receiver.connections += 1
        task = asyncio.create_task(_run(behaviour, AcceptedConnection(receiver, reader, writer)))
        running.add(task)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls, backlog=1024)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        await stop_listening(server)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await server.wait_closed()


async def _run(behaviour: Behaviour, connection: AcceptedConnection) -> None:
    try:
        with suppress(ConnectionError, ssl.SSLError):  # clients may disconnect at any time
            await behaviour(connection)
    finally:
        connection.writer.transport.abort()


def response(status: str, body: bytes = b"", **headers: str) -> bytes:
    """A whole HTTP/1.1 response; `retry_after="5"` becomes the header `retry-after`."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


# -- correct ----------------------------------------------------------------------------------------------------------------


def respond_with(*responses: bytes) -> Behaviour:
    """Answer every request over kept connections; the last response repeats."""
    left = list(responses)

    async def behave(connection: AcceptedConnection) -> None:
        while await connection.request() is not None:
            await connection.send(left.pop(0) if len(left) > 1 else left[0])

    return behave


def respond_in_turn(data: bytes) -> Behaviour:
    """Answer the first request of each connection as if it were kept, and close it when the second has come."""

    async def behave(connection: AcceptedConnection) -> None:
        await connection.request()
        await connection.send(data)
        await connection.request()

    return behave


# -- hostile ----------------------------------------------------------------------------------------------------------------


async def never_respond(connection: AcceptedConnection) -> None:
    await connection.request()
    await connection.reader.read()


async def never_read(connection: AcceptedConnection) -> None:
    await asyncio.Event().wait()


async def close_after_request(connection: AcceptedConnection) -> None:
    await connection.request()


async def close_at_once(connection: AcceptedConnection) -> None:
    """Close without reading a byte."""


async def reset_connection(connection: AcceptedConnection) -> None:
    await connection.request()
    connection.reset()


async def half_close(connection: AcceptedConnection) -> None:
    """Say with FIN that nothing will be sent, and keep the other half open."""
    await connection.request()
    if connection.writer.can_write_eof():
        connection.writer.write_eof()
    await connection.reader.read()


async def send_informational_endlessly(connection: AcceptedConnection) -> None:
    await connection.request()
    while True:
        await connection.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100)


async def send_headers_endlessly(connection: AcceptedConnection) -> None:
    await connection.request()
    await connection.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await connection.send(b"x-more: " + b"a" * 1000 + b"\r\n")


async def send_status_line_endlessly(connection: AcceptedConnection) -> None:
    await connection.request()
    await connection.send(b"HTTP/1.1 200 ")
    while True:
        await connection.send(b"O" * 1000)


async def send_headers_slowly(connection: AcceptedConnection) -> None:
    await connection.request()
    await connection.send_slowly(b"HTTP/1.1 200 OK\r\n" + b"x-slow: 1\r\n" * 1000)


async def send_body_slowly(connection: AcceptedConnection) -> None:
    await connection.request()
    await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\nslow ")
    await connection.send_slowly(b"y" * 100_000)


async def send_body_endlessly(connection: AcceptedConnection) -> None:
    await connection.request()
    await connection.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        await connection.send(b"1000\r\n" + b"z" * 0x1000 + b"\r\n")


async def close_within_body(connection: AcceptedConnection) -> None:
    """Acknowledge, then lose the connection in the middle of the body."""
    await connection.request()
    await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\npart")


async def respond_before_reading(connection: AcceptedConnection) -> None:
    """Answer before the request has been read, and never read it."""
    await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
    await asyncio.Event().wait()


def send_bytes(data: bytes) -> Behaviour:
    """Send these bytes for an answer, whatever they are, and hang up."""

    async def behave(connection: AcceptedConnection) -> None:
        await connection.request()
        await connection.send(data)

    return behave


# -- TLS --------------------------------------------------------------------------------------------------------------------


class CertificateAuthority:
    """A certificate authority of a test, and contexts that trust it."""

    def __init__(self) -> None:
        self._authority = trustme.CA()

    def server(self, *names: str, expired: bool = False) -> ssl.SSLContext:
        now = datetime.now(UTC)  # noqa: TID251 - OpenSSL compares with the machine's clock, not with ours
        not_after = now - timedelta(days=1) if expired else now + timedelta(days=1)
        certificate = self._authority.issue_cert(*names, not_before=now - timedelta(days=2), not_after=not_after)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)  # pyright: ignore[reportUnknownMemberType] - names pyOpenSSL's type
        return context

    def write_certificate(self, path: Path) -> Path:
        """The authority's own certificate, as operators configure it."""
        self._authority.cert_pem.write_to_path(str(path))
        return path

    def demanding_server(self, *names: str) -> ssl.SSLContext:
        """A server that demands a client certificate of this authority."""
        context = self.server(*names)
        context.verify_mode = ssl.CERT_REQUIRED
        self._authority.configure_trust(context)  # pyright: ignore[reportUnknownMemberType] - names pyOpenSSL's type
        return context

    def write_client_certificate(self, path: Path) -> Path:
        """A client certificate of this authority with its private key, as operators configure it."""
        certificate = self._authority.issue_cert("ringback.test")
        certificate.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path

    def write_file(self, path: Path) -> Path:
        """Write the authority's certificate as PEM, and return the path."""
        self._authority.cert_pem.write_to_path(str(path))
        return path

    def write_server_file(self, path: Path, name: str) -> Path:
        """Write a server's certificate as PEM, without its authority's, and return the path."""
        self._authority.issue_cert(name).cert_chain_pems[0].write_to_path(str(path))
        return path

    def client(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self._authority.configure_trust(context)  # pyright: ignore[reportUnknownMemberType] - names pyOpenSSL's type
        return context
