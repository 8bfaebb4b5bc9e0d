"""How the HTTP/1.1 pool connects: names, addresses, TLS, and connections that fail."""

import asyncio
import socket
import ssl
from collections.abc import Sequence

import httpx2
import pytest
import trustme

from ringback.domain.client_address import Address
from ringback.upstreams import dispatch_records
from ringback.upstreams.dispatch_records import DISPATCH_RECORD
from ringback.upstreams.transports.http_pool import PooledHttpTransport
from tests.support.raw_http_server import (
    OK,
    ON_THIS_MACHINE,
    WAIT_SECONDS,
    RawServer,
    client,
    names,
    respond_to_requests,
    serving_raw,
)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


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


class NotingServer(RawServer):
    """Also the record of the call that it gets, which notes how many requests have arrived before each step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[str, int]] = []
        self.is_unsent = asyncio.Event()

    async def record_unsent(self) -> None:
        self.steps.append(("unsent", len(self.requests)))
        self.is_unsent.set()

    async def record_dispatch(self) -> None:
        self.steps.append(("dispatch", len(self.requests)))


async def test_a_call_that_waits_long_for_its_connection_is_recorded_as_unsent_until_it_goes_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = NotingServer()
    monkeypatch.setattr(dispatch_records, "SLOW_SECONDS", 0.0)

    async def look_up_slowly(host: str) -> Sequence[Address]:
        await server.is_unsent.wait()
        return await ON_THIS_MACHINE(host)

    async with serving_raw(respond_to_requests(server, OK), server), client(look_up=look_up_slowly) as http:
        for _ in range(2):  # the second one uses the open connection
            assert (await http.post(server.url, extensions={DISPATCH_RECORD: server})).text == "ok"

    assert server.steps == [("unsent", 0), ("dispatch", 0), ("dispatch", 1)]


async def test_a_connection_that_is_there_when_its_call_is_cancelled_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cancellation comes while the call is still recorded as unsent, because its connection took long."""
    monkeypatch.setattr(dispatch_records, "SLOW_SECONDS", 0.0)
    server, is_accepted, is_closed = StallingServer(), asyncio.Event(), asyncio.Event()

    async def look_up_slowly(host: str) -> Sequence[Address]:
        await server.is_unsent.wait()
        return await ON_THIS_MACHINE(host)

    async def wait_for_end(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        is_accepted.set()
        await reader.read()
        is_closed.set()

    async with (
        asyncio.timeout(WAIT_SECONDS),
        serving_raw(wait_for_end, server),
        client(look_up=look_up_slowly) as http,
    ):
        call = asyncio.create_task(http.post(server.url, extensions={DISPATCH_RECORD: server}))
        await is_accepted.wait()
        call.cancel()
        await asyncio.wait([call])
        await is_closed.wait()


class StallingServer(NotingServer):
    """A store that does not respond."""

    async def record_unsent(self) -> None:
        await super().record_unsent()
        await asyncio.Event().wait()
