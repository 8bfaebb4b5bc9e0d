"""The proxy by which tests break the network between a node and its database."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.support.limits import WAIT_SECONDS
from tests.support.tcp_proxy import TcpProxy, running_tcp_proxy
from tests.support.upstreams import wait_until_true


class Peer:
    """A server that echoes, and knows its connections."""

    def __init__(self) -> None:
        self.opened = asyncio.Semaphore(0)
        self.closed = asyncio.Semaphore(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened.release()
        try:
            while data := await reader.read(100):
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()
            self.closed.release()


@asynccontextmanager
async def connected() -> AsyncGenerator[tuple[TcpProxy, Peer, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection through the proxy over which one message has come back."""
    peer = Peer()
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    async with running_tcp_proxy(server.sockets[0].getsockname()[1]) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"ready")
        assert await reader.readexactly(5) == b"ready"
        yield proxy, peer, reader, writer
        writer.close()
    server.close()


async def test_a_cut_connection_ends_on_both_sides() -> None:
    async with connected() as (proxy, peer, reader, _):
        proxy.cut()

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(reader.read(1), WAIT_SECONDS)
        await asyncio.wait_for(peer.closed.acquire(), WAIT_SECONDS)


async def test_a_stranded_client_gets_nothing_while_the_server_sees_the_end() -> None:
    async with connected() as (proxy, peer, reader, writer):
        proxy.strand_clients()

        await asyncio.wait_for(peer.closed.acquire(), WAIT_SECONDS)
        writer.write(b"hello?")
        reading = asyncio.create_task(reader.read(1))
        await asyncio.wait([reading], timeout=0.05)
        assert not reading.done()
        reading.cancel()


async def test_a_stranded_server_keeps_its_connection_while_the_client_sees_the_end() -> None:
    async with connected() as (proxy, peer, reader, _):
        proxy.strand_server()

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(reader.read(1), WAIT_SECONDS)
        assert proxy.connections == 1
        assert peer.closed.locked()


async def test_what_is_sent_during_a_pause_arrives_after_it() -> None:
    async with connected() as (proxy, _, reader, writer):
        proxy.pause()
        writer.write(b"late")
        reading = asyncio.create_task(reader.readexactly(4))
        await asyncio.wait([reading], timeout=0.05)
        assert not reading.done()

        proxy.resume()

        assert await asyncio.wait_for(reading, WAIT_SECONDS) == b"late"


async def test_a_refused_connection_is_reset_and_a_later_one_works() -> None:
    async with connected() as (proxy, _, _, _):
        proxy.refuse()
        refused, _ = await asyncio.open_connection("127.0.0.1", proxy.port)
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(refused.read(1), WAIT_SECONDS)

        proxy.refuse(refusing=False)

        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"again")
        assert await asyncio.wait_for(reader.readexactly(5), WAIT_SECONDS) == b"again"
        writer.close()


async def test_a_client_whose_servers_connection_is_being_opened_is_reset_when_the_proxy_ends() -> None:
    """Such connections stayed open, and failed the test that ran when they were collected."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        waiting = socket.create_connection(address)  # a queue of one, which nobody accepts
        async with running_tcp_proxy(address[1]) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            await wait_until_true(lambda: proxy.accepted == 1)
        waiting.close()

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(reader.read(1), WAIT_SECONDS)
        writer.close()
