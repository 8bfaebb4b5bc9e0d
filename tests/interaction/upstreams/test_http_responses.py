"""How the HTTP/1.1 pool reads responses: framing, limits, and responses that are none."""

import asyncio

import httpx2
import pytest

from ringback.upstreams.transports.http_connection import BUFFERED_BYTES_MAX, HEAD_BYTES_MAX
from tests.support.raw_http_server import (
    OK,
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


@pytest.mark.parametrize(
    ("pieces", "close", "text"),
    [
        ((b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"2\r\nok\r\n", b"0\r\n\r\n"), False, "ok"),
        ((b"HTTP/1.1 200 OK\r\n\r\n", b"o", b"k"), True, "ok"),
        ((b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", OK), False, "ok"),
        ((b"HTTP/1.1 204 No Content\r\n\r\n",), False, ""),
        ((b"HTT", b"P/1.1 200 OK\r\ncontent-le", b"ngth: 2\r\n\r", b"\no", b"k"), False, "ok"),
    ],
    ids=["chunks", "until the end of the connection", "informational responses", "no body", "small pieces"],
)
async def test_every_framing_of_http_1_1_is_read(pieces: tuple[bytes, ...], *, close: bool, text: str) -> None:
    server = RawServer()
    async with serving_raw(respond_to_requests(server, *pieces, close=close), server), client() as http:
        assert (await http.post(server.url)).text == text
        assert (await http.post(server.url)).text == text


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"", httpx2.RemoteProtocolError),
        (b"SSH-2.0-OpenSSH_9.2\r\n", httpx2.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n", httpx2.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", httpx2.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n", httpx2.RemoteProtocolError),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", httpx2.RemoteProtocolError),
    ],
    ids=["nothing", "no HTTP", "two lengths", "a body cut off", "chunks cut off", "another protocol"],
)
async def test_a_response_that_is_none_or_breaks_off_is_an_error(said: bytes, error: type[Exception]) -> None:
    server = RawServer()
    async with serving_raw(respond_to_requests(server, said, close=True), server), client() as http:
        with pytest.raises(error):
            await http.post(server.url)


async def test_a_head_without_end_is_refused_before_it_is_stored() -> None:
    server = RawServer()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader, server)
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while not writer.is_closing():
            writer.write(b"x-more: " + b"x" * 4096 + b"\r\n")
            await writer.drain()

    async with serving_raw(talk, server), client() as http:
        with pytest.raises(httpx2.RemoteProtocolError, match=f"{HEAD_BYTES_MAX} bytes"):
            await http.post(server.url)


async def test_reading_pauses_while_the_response_is_not_consumed() -> None:
    server, written, stalled = RawServer(), 0, asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await read_request(reader, server)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        writer.transport.set_write_buffer_limits(high=0)
        while written < 100 * BUFFERED_BYTES_MAX:
            writer.write(b"x" * BUFFERED_BYTES_MAX)
            written += BUFFERED_BYTES_MAX
            try:
                await asyncio.wait_for(writer.drain(), 1)
            except TimeoutError:
                stalled.set()
                await writer.drain()

    async with serving_raw(talk, server), client() as http, http.stream("POST", server.url) as response:
        await stalled.wait()
        held = written
        taken = 0
        async for piece in response.aiter_raw():
            taken += len(piece)

    assert held < 100 * BUFFERED_BYTES_MAX
    assert taken == written == 100 * BUFFERED_BYTES_MAX


async def test_bytes_after_a_response_are_never_the_next_response() -> None:
    server = RawServer()
    surplus = OK + b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nother"
    async with serving_raw(respond_to_requests(server, surplus), server), client() as http:
        answers = [(await http.post(server.url)).text for _ in range(3)]

    assert answers == ["ok"] * 3
    assert server.connections == 3


async def test_a_response_before_the_request_was_taken_is_read() -> None:
    server = RawServer()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\nno")
        await writer.drain()
        await asyncio.Event().wait()

    async with client() as http, serving_raw(talk, server):
        response = await http.post(server.url, content=b"x" * 50_000_000)

    assert (response.status_code, response.text) == (413, "no")


async def test_a_silent_server_ends_a_request_with_a_read_time() -> None:
    server = RawServer()
    async with serving_raw(respond_to_requests(server, b""), server), client() as http:
        with pytest.raises(httpx2.ReadTimeout):
            await http.post(server.url, timeout=httpx2.Timeout(None, read=0.01))


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 1000),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000),
        (b"HTTP/1.1 200 ", b"x" * 10_000),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n" * 1000),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ", b"x" * 10_000),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;x=", b"x" * 10_000),
    ],
    ids=["headers", "informational responses", "a reason", "trailers", "one trailer", "a chunk extension"],
)
async def test_a_response_without_a_defined_body_end_is_refused(begin: bytes, more: bytes) -> None:
    server = RawServer()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader, server)
        writer.write(begin)
        while True:
            writer.write(more)
            await writer.drain()

    async with serving_raw(talk, server), client() as http:
        with pytest.raises(httpx2.RemoteProtocolError, match=f"{HEAD_BYTES_MAX} bytes"):
            await http.post(server.url)
        await wait_until_closed(server)


async def test_a_head_of_many_headers_in_one_piece_is_refused() -> None:
    server = RawServer()
    many = OK.replace(b"\r\n\r\n", b"\r\n" + b"x: y\r\n" * 20_000 + b"\r\n")
    async with serving_raw(respond_to_requests(server, many), server), client() as http:
        with pytest.raises(httpx2.RemoteProtocolError, match=f"{HEAD_BYTES_MAX} bytes"):
            await http.post(server.url)
