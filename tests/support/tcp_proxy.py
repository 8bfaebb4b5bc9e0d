"""A TCP proxy between a node and its database, by which a test breaks the network.

async with running_tcp_proxy(server.port) as proxy:
    url = server.address.tcp_url("ringback", port=proxy.port)
    proxy.cut()
"""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from tests.support.listeners import stop_listening

SYNC: Final = b"S\x00\x00\x00\x04"
"""PostgreSQL's message that ends a statement with parameters."""
CHUNK_BYTES: Final = 64 * 1024
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with 0 seconds: a close sends RST and drops what was not sent."""


class TcpProxy:
    """Each connection of a client has one of its own to the server. Every method acts on the connections of this moment."""

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self.accepted = 0
        """Connections so far."""
        self._server_port = server_port
        self._links: set[Link] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = self._withholds_syncs = False
        self._cut_interval: int | None = None
        self._sent = 0
        """Pieces from clients since the interval was set."""

    def cut(self) -> None:
        """Reset both sides of every connection."""
        for link in list(self._links):
            link.reset_client()
            link.reset_server()

    def strand_clients(self) -> None:
        """Close the server's sides; the clients receive nothing, as after the loss of a router's state."""
        for link in list(self._links):
            link.stranded = True
            link.reset_server()

    def strand_server(self) -> None:
        """Reset the clients' sides; the server receives nothing, and keeps its sessions, their transactions and their locks."""
        for link in list(self._links):
            link.stranded = True
            link.reset_client()

    def pause(self) -> None:
        """Deliver nothing in either direction, on new connections too."""
        self._flowing.clear()

    def resume(self) -> None:
        """Deliver what was sent meanwhile, and go on."""
        self._flowing.set()

    def withhold_syncs(self) -> None:
        """Keep back the end of each statement: the server executes it, and waits for the rest of the message."""
        self._withholds_syncs = True

    def cut_each(self, pieces: int | None) -> None:
        """Reset the connection of each so many-th piece that a client sends, in the place of the piece; None ends this."""
        self._cut_interval, self._sent = pieces, 0

    def refuse(self, *, refusing: bool = True) -> None:
        """Reset new connections at once, as if nothing listened; or accept them again."""
        self._refusing = refusing

    @property
    def connections(self) -> int:
        return len(self._links)

    async def serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self._refusing:
            _reset(writer)
            return
        try:
            server = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:  # the server is down
            _reset(writer)
            return
        link = Link(client=writer, server=server[1])
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, server[1], link, may_cut=True))
                group.create_task(self._forward(server[0], writer, link))
        finally:
            self._links.discard(link)
            link.reset_client()
            link.reset_server()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: "Link", *, may_cut: bool = False
    ) -> None:
        """Forward one direction until its end, and then end the other."""
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._flowing.wait()
                if may_cut and self._is_cut_now():
                    link.reset_client()
                    link.reset_server()
                    return
                writer.write(data.removesuffix(SYNC) if self._withholds_syncs else data)
                await writer.drain()
        if link.stranded:
            await asyncio.Event().wait()  # the other side receives nothing until the proxy is closed
        _close(writer)

    def _is_cut_now(self) -> bool:
        self._sent += 1
        return self._cut_interval is not None and self._sent % self._cut_interval == 0


class Link:
    """A client's connection and the server's connection that belongs to it."""

    def __init__(self, *, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.stranded = False
        self.reset_client: Callable[[], None] = lambda: _reset(client)
        self.reset_server: Callable[[], None] = lambda: _reset(server)


def _close(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    writer.transport.abort()


@asynccontextmanager
async def running_tcp_proxy(server_port: int) -> AsyncGenerator[TcpProxy]:
    """A proxy to this port of the machine, on a port of its own; at the end it resets all connections."""
    proxy, tasks = TcpProxy(server_port), set[asyncio.Task[None]]()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(proxy.serve_client(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(
            lambda _: _reset(writer)
        )  # also if it ends while the server's connection is being opened

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        await stop_listening(server)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
