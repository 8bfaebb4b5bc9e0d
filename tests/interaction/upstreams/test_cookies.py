"""Cookies of upstreams are sent back, as load balancers require, with limits on their number and size."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

import httpx2
import pytest

from ringback.domain import jsontext
from ringback.domain.clock import SystemClock
from ringback.upstreams.faults import FaultCounter
from ringback.upstreams.transports.cookies import COOKIE_BYTES_MAX, COOKIES_MAX
from ringback.upstreams.transports.guarded_http import make_guarded_transport, make_http_client
from ringback.upstreams.transports.large_results import LargeResults
from tests.support.raw_http_server import (
    ON_THIS_MACHINE,
    RawServer,
    ServeConnection,
    read_request,
    serving_raw,
)
from tests.support.upstreams import make_http_config

WAIT_SECONDS: Final = 60
CALL: Final[dict[str, Any]] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ANSWER: Final = jsontext.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": []}})
EVENT: Final = b"event: message\ndata: " + ANSWER + b"\n\n"


def setting(server: RawServer, cookies: Iterator[list[str]], *, stream: bool = False) -> ServeConnection:
    """Answers every request, and sets the next of these cookies with it."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader, server)
            kind, body = (b"text/event-stream", EVENT) if stream else (b"application/json", ANSWER)
            lines = [b"HTTP/1.1 200 OK", b"content-type: " + kind, b"content-length: %d" % len(body)]
            lines += [f"set-cookie: {cookie}".encode() for cookie in next(cookies)]
            writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)

    return talk


@asynccontextmanager
async def client(server: RawServer, **headers: str) -> AsyncGenerator[httpx2.AsyncClient]:
    config = make_http_config(server.url)
    transport = make_guarded_transport(
        config,
        None,
        look_up=ON_THIS_MACHINE,
        faults=FaultCounter("a", clock=SystemClock()),
        large_results=LargeResults(),
    )
    async with asyncio.timeout(WAIT_SECONDS), make_http_client(config, transport, headers) as http:
        yield http


def cookies_of(request: bytes) -> list[bytes]:
    return [line for line in request.split(b"\r\n") if line.lower().startswith(b"cookie:")]


@pytest.mark.parametrize("stream", [False, True], ids=["json", "event stream"])
async def test_the_cookie_of_a_load_balancer_is_sent_back_and_kept_from_the_sdk(*, stream: bool) -> None:
    server, cookies = RawServer(), iter([["lb=one; Path=/; HttpOnly"], [], ["lb=two; Path=/"], []])
    async with serving_raw(setting(server, cookies, stream=stream), server), client(server) as http:
        for _ in range(4):
            answer = await http.post(server.url, json=CALL)
            assert ANSWER in answer.content
            assert "set-cookie" not in answer.headers
        assert len(http.cookies.jar) == 0

    assert [cookies_of(request) for request in server.requests] == [
        [],
        [b"Cookie: lb=one"],
        [b"Cookie: lb=one"],
        [b"Cookie: lb=two"],
    ]


async def test_the_number_of_stored_cookies_is_bounded() -> None:
    server, numbers = RawServer(), count()
    cookies = ([f"a{next(numbers)}={'x' * 10}" for _ in range(40)] for _ in count())
    async with serving_raw(setting(server, cookies), server), client(server) as http:
        for _ in range(20):
            await http.post(server.url, json=CALL)

    (line,) = cookies_of(server.requests[-1])
    assert line.count(b"=") == COOKIES_MAX


async def test_a_full_jar_still_takes_the_new_value_of_a_cookie_that_it_holds() -> None:
    server = RawServer()
    cookies = iter([[f"a{number}=old" for number in range(COOKIES_MAX)], ["b=other", "a7=new"], []])
    async with serving_raw(setting(server, cookies), server), client(server) as http:
        for _ in range(3):
            await http.post(server.url, json=CALL)

    (line,) = cookies_of(server.requests[-1])
    assert b"a7=new" in line
    assert b"b=other" not in line


async def test_a_cookie_that_is_too_large_or_of_another_host_is_not_kept() -> None:
    server = RawServer()
    cookies = iter([["large=" + "x" * COOKIE_BYTES_MAX, "foreign=1; Domain=example.com", "small=1"], []])
    async with serving_raw(setting(server, cookies), server), client(server) as http:
        for _ in range(2):
            await http.post(server.url, json=CALL)

    assert cookies_of(server.requests[-1]) == [b"Cookie: small=1"]


async def test_a_configured_cookie_is_sent_as_it_is() -> None:
    server, cookies = RawServer(), iter([["lb=one"], []])
    async with serving_raw(setting(server, cookies), server), client(server, cookie="ours=1") as http:
        for _ in range(2):
            await http.post(server.url, json=CALL)

    assert [cookies_of(request) for request in server.requests] == [[b"cookie: ours=1"]] * 2
