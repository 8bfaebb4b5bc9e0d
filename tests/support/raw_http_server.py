"""A raw HTTP/1.1 server on a real socket, which sends exactly what a test specifies, and a client with our pool."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2

from ringback.notifier.configured_hosts import ConfiguredHosts, LookUp
from ringback.upstreams.transports.http_pool import PooledHttpTransport
from tests.support.listeners import stop_listening
from tests.support.resolvers import FakeResolver

WAIT_SECONDS = 60


ServeConnection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def names(known: Mapping[str, Sequence[str]]) -> LookUp:
    return ConfiguredHosts(FakeResolver(known)).look_up_for("an upstream")


ON_THIS_MACHINE = names({"localhost": ["127.0.0.1"]})


@dataclass
class RawServer:
    url: str = ""
    connections: int = 0
    open: int = 0
    closed_count: asyncio.Event = field(default_factory=asyncio.Event)
    requests: list[bytes] = field(default_factory=list[bytes])


@asynccontextmanager
async def serving_raw(
    talk: ServeConnection, server: RawServer, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[None]:
    connected_writers: set[asyncio.StreamWriter] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected_writers.add(writer)
        server.connections += 1
        server.open += 1
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            server.open -= 1
            server.closed_count.set()
            writer.close()
            connected_writers.discard(writer)

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    scheme, host = ("http", "127.0.0.1") if tls is None else ("https", "localhost")
    server.url = f"{scheme}://{host}:{listening.sockets[0].getsockname()[1]}/mcp"
    try:
        yield
    finally:
        await stop_listening(listening)
        for writer in connected_writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # an aborted connection closes its socket in the next turn


async def read_request(reader: asyncio.StreamReader, server: RawServer) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line[16:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length: ")), 0)
    server.requests.append(head + await reader.readexactly(length))
    return head


def respond_to_requests(server: RawServer, *pieces: bytes, close: bool = False) -> ServeConnection:
    """Says the same to every request of a connection, piece by piece."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader, server)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            if close:
                return

    return talk


@asynccontextmanager
async def client(
    certificates: ssl.SSLContext | None = None, *, look_up: LookUp | None = None
) -> AsyncGenerator[httpx2.AsyncClient]:
    look_up = look_up or ON_THIS_MACHINE
    transport = PooledHttpTransport(certificates or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), look_up=look_up)
    async with asyncio.timeout(WAIT_SECONDS), httpx2.AsyncClient(transport=transport, timeout=None) as http:
        yield http


async def wait_until_closed(server: RawServer) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while server.open:
            server.closed_count.clear()
            await server.closed_count.wait()
