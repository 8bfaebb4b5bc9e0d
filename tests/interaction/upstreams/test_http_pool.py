"""The HTTP/1.1 pool, against servers on real sockets that send exactly what a test specifies."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import httpx2
import pytest
import trustme

from ringback.notifier.configured_hosts import ConfiguredHosts, LookUp
from ringback.upstreams.transports.http_connection import BUFFERED_BYTES_MAX, HEAD_BYTES_MAX, UpstreamHttpConnection
from ringback.upstreams.transports.http_pool import PooledHttpTransport
from tests.support.resolvers import FakeResolver

WAIT_SECONDS = 60
ServeConnection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


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
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    scheme, host = ("http", "127.0.0.1") if tls is None else ("https", "localhost")
    server.url = f"{scheme}://{host}:{listening.sockets[0].getsockname()[1]}/mcp"
    try:
        yield
    finally:
        listening.close()


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


async def test_bytes_after_a_response_are_never_the_next_response() -> None:
    server = RawServer()
    surplus = OK + b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nother"
    async with serving_raw(respond_to_requests(server, surplus), server), client() as http:
        answers = [(await http.post(server.url)).text for _ in range(3)]

    assert answers == ["ok"] * 3
    assert server.connections == 3


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


@pytest.mark.parametrize("value", ["a\r\nx-injected: 1", "a\nb", "a\x00b"])
async def test_a_header_that_would_inject_another_is_never_sent(value: str) -> None:
    server = RawServer()
    async with serving_raw(respond_to_requests(server, OK), server), client() as http:
        with pytest.raises(httpx2.LocalProtocolError):
            await http.post(server.url, headers={"authorization": value})

    assert server.requests == []


async def test_a_silent_server_ends_a_request_with_a_read_time() -> None:
    server = RawServer()
    async with serving_raw(respond_to_requests(server, b""), server), client() as http:
        with pytest.raises(httpx2.ReadTimeout):
            await http.post(server.url, timeout=httpx2.Timeout(None, read=0.01))


async def test_a_closed_port_is_a_connect_error() -> None:
    listening = await asyncio.start_server(respond_to_requests(RawServer()), "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    listening.close()
    await listening.wait_closed()
    async with client() as http:
        with pytest.raises(httpx2.ConnectError):
            await http.post(f"http://127.0.0.1:{port}/mcp")


async def test_another_scheme_is_refused() -> None:
    async with client() as http:
        with pytest.raises(httpx2.UnsupportedProtocol):
            await http.post("ftp://127.0.0.1/mcp")


async def test_tls_uses_the_host_name_of_the_url() -> None:
    authority, server = trustme.CA(), RawServer()
    offered = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(offered)  # pyright: ignore[reportUnknownMemberType] - OpenSSL
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)  # pyright: ignore[reportUnknownMemberType] - pyOpenSSL has no types here
    async with serving_raw(respond_to_requests(server, OK), server, tls=offered):
        async with client(trusted) as http:
            assert (await http.post(server.url)).text == "ok"
        async with client(ssl.create_default_context()) as http:
            with pytest.raises(httpx2.ConnectError):
                await http.post(server.url)


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


# -- bad days and attackers ---------------------------------------------------------------------------------------------------


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


async def test_a_transport_that_is_closed_while_it_connects_sends_nothing() -> None:
    server, transport = (
        RawServer(),
        PooledHttpTransport(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), look_up=ON_THIS_MACHINE),
    )
    async with asyncio.timeout(WAIT_SECONDS), serving_raw(respond_to_requests(server, OK), server):
        request = asyncio.create_task(transport.handle_async_request(httpx2.Request("POST", server.url)))
        await asyncio.sleep(0)
        await transport.aclose()
        with pytest.raises(httpx2.ConnectError):
            await request
    assert server.requests == []


async def connected(host: str, port: int) -> UpstreamHttpConnection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(UpstreamHttpConnection, host, port)
    return connection


async def wait_until_closed(server: RawServer) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while server.open:
            server.closed_count.clear()
            await server.closed_count.wait()


async def test_an_address_without_a_listener_leaves_time_for_the_next() -> None:
    """As with a host whose IPv6 does not work. 127.0.0.9 is an address of this machine too, and nothing listens there."""
    server, look_up = RawServer(), names({"two.example": ["127.0.0.9", "127.0.0.1"]})
    async with serving_raw(respond_to_requests(server, OK), server), client(look_up=look_up) as http:
        port = httpx2.URL(server.url).port or 0
        assert (await http.post(f"http://two.example:{port}/mcp")).text == "ok"


async def test_the_event_loop_makes_no_blocking_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would do so in a few threads that all upstreams share, and that names which hang would hold."""
    server = RawServer()

    def refuse(host: str, *_: object, **__: object) -> None:
        raise AssertionError(host)

    async with (
        serving_raw(respond_to_requests(server, OK), server),
        client(look_up=names({"only.ours.test": ["127.0.0.1"]})) as http,
    ):
        monkeypatch.setattr(socket, "getaddrinfo", refuse)
        port = httpx2.URL(server.url).port or 0
        assert (await http.post(f"http://only.ours.test:{port}/mcp")).text == "ok"


async def test_a_name_without_an_address_is_a_connect_error() -> None:
    async with client(look_up=names({})) as http:
        with pytest.raises(httpx2.ConnectError, match="no address"):
            await http.post("http://nowhere.test/mcp")
