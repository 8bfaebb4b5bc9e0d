"""An HTTP proxy on a real socket: it accepts CONNECT and passes bytes on, or responds as a test wants.

async with serving_connect_proxy() as proxy:
    ... connect through 127.0.0.1:{proxy.port} ...
    assert proxy.requests[0].startswith("CONNECT ")
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field

from tests.support.listeners import stop_listening

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@dataclass(slots=True)
class ConnectProxy:
    port: int = 0
    requests: list[str] = field(default_factory=list[str])
    """The heads of the requests."""

    @property
    def authorities(self) -> list[str]:
        """What clients asked to be connected to."""
        return [request.split(" ")[1] for request in self.requests]


@asynccontextmanager
async def serving_connect_proxy(response: bytes = ESTABLISHED) -> AsyncGenerator[ConnectProxy]:
    """Passes bytes on after a 2xx response that is complete; closes the connection after any other."""
    proxy = ConnectProxy()
    running: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError, asyncio.IncompleteReadError):
            proxy.requests.append((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
            writer.write(response)
            if response == ESTABLISHED:
                await _pass_on(proxy.authorities[-1], reader, writer)
            await writer.drain()

    def start(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running.add(asyncio.create_task(accept(reader, writer)))

    server = await asyncio.start_server(start, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        await stop_listening(server)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await server.wait_closed()


async def _pass_on(authority: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    host, _, port = authority.rpartition(":")
    far_reader, far_writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
    finally:
        far_writer.transport.abort()
        writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    writer.transport.abort()  # callbacks use no half-closed connections
