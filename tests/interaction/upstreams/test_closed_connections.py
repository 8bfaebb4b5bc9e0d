"""A closed connection to an upstream is not in memory until the garbage collector runs: it may have 256 KB of unread body."""

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
import pytest

from ringback.upstreams.transports.http_connection import BUFFERED_BYTES_MAX, UpstreamHttpConnection
from tests.support.engine import wait_until
from tests.support.event_loops import both_event_loops
from tests.support.raw_http_server import OK, RawServer, client, read_request, serving_raw

anyio_backend = both_event_loops
pytestmark = pytest.mark.usefixtures("without_garbage_collector")

REQUESTS = 3
FLOOD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + b": comment\n\n" * BUFFERED_BYTES_MAX
BROKEN = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok"
BEGUN = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"


async def count_connections() -> int:
    """The connections in memory, some turns later: an event loop closes a connection in a later turn."""
    for _ in range(20):
        await asyncio.sleep(0)
    return sum(isinstance(each, UpstreamHttpConnection) for each in gc.get_objects())


async def has_no_connection() -> bool:
    return await count_connections() == 0


@asynccontextmanager
async def serving(server: RawServer, response: bytes, *, close: bool) -> AsyncGenerator[httpx2.AsyncClient]:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader, server)
        writer.write(response)
        if not close:
            await reader.read()

    async with serving_raw(talk, server), client() as http:
        yield http


async def test_a_flooding_stream_that_is_left() -> None:
    server = RawServer()
    async with serving(server, FLOOD, close=False) as http:
        for _ in range(REQUESTS):
            async with http.stream("POST", server.url) as response:
                await anext(response.aiter_raw())
        assert await count_connections() == 0


async def test_a_response_that_breaks_off() -> None:
    server = RawServer()
    async with serving(server, BROKEN, close=True) as http:
        for _ in range(REQUESTS):
            with pytest.raises(httpx2.RemoteProtocolError):
                await http.post(server.url)
        assert await count_connections() == 0


async def test_an_upstream_that_falls_silent() -> None:
    server = RawServer()
    async with serving(server, BEGUN, close=False) as http:
        for _ in range(REQUESTS):
            with pytest.raises(httpx2.ReadTimeout):
                await http.post(server.url, timeout=httpx2.Timeout(None, read=0.01))
        assert await count_connections() == 0


async def test_a_connection_that_the_upstream_closes_after_its_response() -> None:
    server = RawServer()
    async with serving(server, OK, close=True) as http:
        for _ in range(REQUESTS):
            assert (await http.post(server.url)).text == "ok"
            await wait_until(has_no_connection)
