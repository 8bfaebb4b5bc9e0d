"""The HTTP/1.1 pool: which connections it reuses, closes and gives to requests."""

import asyncio
from collections.abc import AsyncGenerator
from typing import cast

import httpx2
import pytest

from ringback.upstreams.transports.http_connection import BUFFERED_BYTES_MAX, UpstreamHttpConnection
from tests.support.raw_http_server import (
    OK,
    WAIT_SECONDS,
    RawServer,
    client,
    read_request,
    respond_to_requests,
    serving_raw,
    wait_until_closed,
)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


async def connected(host: str, port: int) -> UpstreamHttpConnection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(UpstreamHttpConnection, host, port)
    return connection


async def test_requests_that_follow_each_other_share_a_connection() -> None:
    server = RawServer()
    async with serving_raw(respond_to_requests(server, OK), server), client() as http:
        answers = [(await http.post(server.url, json={"number": number})).text for number in range(3)]

    assert answers == ["ok"] * 3
    assert server.connections == 1
    assert server.requests[2].endswith(b'{"number":2}')


async def test_requests_at_the_same_time_have_a_connection_each() -> None:
    server, all_there = RawServer(), asyncio.Barrier(3)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader, server)
        await all_there.wait()
        writer.write(OK)

    async with serving_raw(talk, server), client() as http:
        answers = await asyncio.gather(*(http.post(server.url) for _ in range(3)))

    assert [answer.text for answer in answers] == ["ok"] * 3
    assert server.connections == 3


async def test_a_stream_that_is_left_closes_its_connection() -> None:
    server, gone = RawServer(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader, server)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\ndata: 1\n\n")
        try:
            await reader.read()
        finally:
            gone.set()

    async with serving_raw(talk, server), client() as http:
        async with http.stream("POST", server.url) as response:
            assert await anext(response.aiter_raw()) == b"data: 1\n\n"
        await gone.wait()


async def test_a_request_that_is_cancelled_closes_its_connection() -> None:
    server, asked, gone = RawServer(), asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader, server)
        asked.set()
        try:
            await reader.read()
        finally:
            gone.set()

    async with serving_raw(talk, server), client() as http:
        request = asyncio.create_task(http.post(server.url))
        await asked.wait()
        request.cancel()
        await gone.wait()
        with pytest.raises(asyncio.CancelledError):
            await request


async def test_a_kept_connection_that_the_server_closed_is_not_used_again() -> None:
    server, closed = RawServer(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader, server)
        writer.write(OK)
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with serving_raw(talk, server), client() as http:
        for _ in range(5):
            closed.clear()
            assert (await http.post(server.url)).text == "ok"
            await closed.wait()

    assert server.connections == 5


@pytest.mark.parametrize("value", ["a\r\nx-injected: 1", "a\nb", "a\x00b"])
async def test_a_header_that_would_inject_another_is_never_sent(value: str) -> None:
    server = RawServer()
    async with serving_raw(respond_to_requests(server, OK), server), client() as http:
        with pytest.raises(httpx2.LocalProtocolError):
            await http.post(server.url, headers={"authorization": value})

    assert server.requests == []


async def test_closing_the_transport_closes_what_is_kept_and_what_is_in_use() -> None:
    server, gone = RawServer(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader, server)
        writer.write(OK)
        await reader.read()
        gone.set()

    async with serving_raw(talk, server):
        async with client() as http:
            await http.post(server.url)
        async with asyncio.timeout(WAIT_SECONDS):
            await gone.wait()


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n", OK[:20]])
async def test_nothing_is_sent_on_a_connection_that_the_server_closed_or_wrote_to(said: bytes) -> None:
    server = RawServer()

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)

    async with asyncio.timeout(WAIT_SECONDS), serving_raw(talk, server):
        url = httpx2.URL(server.url)
        connection = await connected(url.host, url.port or 0)
        while not connection.is_closing:  # noqa: ASYNC110 - no event announces it
            await asyncio.sleep(0)
        with pytest.raises(httpx2.ConnectError):
            await connection.send_request(b"POST / HTTP/1.1\r\n\r\n")


async def test_a_connection_with_an_unread_large_response_is_not_reused() -> None:
    server = RawServer()
    size = 4 * BUFFERED_BYTES_MAX
    large = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size
    async with serving_raw(respond_to_requests(server, large), server), client() as http:
        for _ in range(3):
            async with http.stream("POST", server.url):
                for _ in range(100):
                    await asyncio.sleep(0)
        assert len((await http.post(server.url)).content) == size


async def test_a_server_that_ends_its_half_and_reads_no_further_ends_the_request_and_the_connection() -> None:
    server = RawServer()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok")
        writer.write_eof()
        while await reader.read(65_536):
            pass

    async with serving_raw(talk, server), client() as http:
        with pytest.raises(httpx2.TransportError):
            await http.post(server.url, content=b"x" * 50_000_000)
        await wait_until_closed(server)


async def test_a_request_cancelled_at_any_time_leaves_no_connection_and_no_response_to_another() -> None:
    server = RawServer()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader, server)
            body = server.requests[-1].partition(b"\r\n\r\n")[2]
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            await writer.drain()
            writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))

    async with serving_raw(talk, server):
        async with client() as http:
            for turns in range(60):
                request = asyncio.create_task(http.post(server.url, content=b"cancelled"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                request.cancel()
                await asyncio.wait({request})
                assert (await http.post(server.url, content=b"%d" % turns)).text == str(turns)
        await wait_until_closed(server)


async def test_an_upstream_may_be_slow_to_take_a_request_as_long_as_it_goes_on() -> None:
    server, size = RawServer(), 20_000_000

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken = 0
        while taken < size:
            taken += len(await reader.read(200_000))
            await asyncio.sleep(0)
        writer.write(OK)
        await reader.read()

    timeout = httpx2.Timeout(None, write=WAIT_SECONDS)
    async with serving_raw(talk, server), client() as http:
        assert (await http.post(server.url, content=b"x" * size, timeout=timeout)).text == "ok"


async def test_an_upstream_that_takes_nothing_of_a_request_ends_it() -> None:
    server, over = RawServer(), asyncio.Event()

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cast("asyncio.Transport", writer.transport).pause_reading()
        await over.wait()  # a connection that reads nothing does not notice its own end
        writer.transport.abort()

    async with client() as http, serving_raw(talk, server):
        with pytest.raises(httpx2.WriteTimeout):
            await http.post(server.url, content=b"x" * 50_000_000, timeout=httpx2.Timeout(None, write=0.05))
        over.set()
        await server.closed_count.wait()


async def test_a_body_of_which_the_length_is_not_known_is_not_sent() -> None:
    async def body() -> AsyncGenerator[bytes]:
        yield b"0\r\n\r\nPOST /other HTTP/1.1\r\n\r\n"

    server = RawServer()
    async with serving_raw(respond_to_requests(server, OK), server), client() as http:
        with pytest.raises(httpx2.LocalProtocolError):
            await http.post(server.url, content=body())
    assert server.requests == []
