"""A response that arrives a byte at a time ends with an error, and one that makes progress does not."""

import asyncio
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx
import pytest

from ringback.client import ConnectionFailed, RingbackClient, SyncRingbackClient
from ringback.client.response_limits import PROGRESS_BYTES
from ringback.schemas import examples
from tests.support.limits import WAIT_SECONDS
from tests.support.raw_http_server import RawServer, serving_raw
from tests.support.slow_bodies import send_slowly

TIMEOUT_SECONDS = 0.2
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


class Body(httpx.AsyncByteStream):
    def __init__(self, chunks: AsyncGenerator[bytes]) -> None:
        self._chunks = chunks
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks:
            yield chunk

    async def aclose(self) -> None:
        await self._chunks.aclose()
        self.is_closed = True


def respond_with(body: Body, *, status: int = 200) -> httpx.MockTransport:
    return httpx.MockTransport(lambda _: httpx.Response(status, stream=body))


async def test_a_body_that_arrives_a_byte_at_a_time_ends_with_an_error() -> None:
    body = Body(send_slowly(b" "))
    client = RingbackClient("http://r.example", transport=respond_with(body), timeout_seconds=TIMEOUT_SECONDS)
    async with client, asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(ConnectionFailed, match="did not respond in time"):
            await client.call("call_1")

    assert body.is_closed


def test_so_it_does_without_await() -> None:
    body = Body(send_slowly(b" "))
    options: dict[str, Any] = {"transport": respond_with(body), "timeout_seconds": TIMEOUT_SECONDS}
    with SyncRingbackClient("http://r.example", **options) as client, pytest.raises(ConnectionFailed, match="in time"):
        client.call("call_1")


async def test_the_error_of_a_stream_that_arrives_a_byte_at_a_time_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringback.client.event_stream.STREAM_IDLE_TIMEOUT_SECONDS", TIMEOUT_SECONDS)
    transport = respond_with(Body(send_slowly(b" ")), status=403)
    client = RingbackClient("http://r.example", transport=transport)
    async with client, asyncio.timeout(WAIT_SECONDS), client.stream_events() as stream:
        with pytest.raises(ConnectionFailed, match="did not respond in time"):
            await anext(stream)


@pytest.mark.parametrize("head", [HEAD, b""], ids=["in the headers", "in the status line"])
async def test_headers_that_arrive_a_byte_at_a_time_end_with_an_error(
    monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr("ringback.client.http_transport.CONNECT_TIMEOUT_SECONDS", TIMEOUT_SECONDS)

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        async for byte in send_slowly(b"x"):
            writer.write(byte)
            await writer.drain()

    server = RawServer()
    async with serving_raw(trickle, server), asyncio.timeout(WAIT_SECONDS):
        client = RingbackClient(server.url.removesuffix("/mcp"), timeout_seconds=TIMEOUT_SECONDS)
        async with client:
            with pytest.raises(ConnectionFailed, match="did not respond in time"):
                await client.call("call_1")


async def test_a_large_response_that_makes_progress_takes_as_long_as_it_needs() -> None:
    """Longer than `timeout_seconds` as a whole."""
    result = json.dumps({"content": [{"type": "text", "text": "x" * 40 * PROGRESS_BYTES}]}).encode()

    async def send_in_parts() -> AsyncGenerator[bytes]:
        parts = [result[start : start + PROGRESS_BYTES] for start in range(0, len(result), PROGRESS_BYTES)]
        async for _ in send_slowly(b""):
            if not parts:
                return
            yield parts.pop(0)

    began_at = asyncio.get_running_loop().time()
    transport = respond_with(Body(send_in_parts()))
    async with RingbackClient("http://r.example", transport=transport, timeout_seconds=TIMEOUT_SECONDS) as client:
        received = await client.result("call_1")

    assert len(received["content"][0]["text"]) == 40 * PROGRESS_BYTES
    assert asyncio.get_running_loop().time() - began_at > TIMEOUT_SECONDS


async def test_a_long_poll_has_its_wait_in_addition() -> None:
    async def send_after_wait() -> AsyncGenerator[bytes]:
        spaces = 30
        async for space in send_slowly(b" "):
            yield space
            spaces -= 1
            if not spaces:
                break
        yield json.dumps(examples.FINISHED_CALL).encode()

    transport = respond_with(Body(send_after_wait()))
    async with RingbackClient("http://r.example", transport=transport, timeout_seconds=TIMEOUT_SECONDS) as client:
        call = await client.call("call_1", wait_seconds=30)

    assert call.final


async def test_a_client_may_wait_without_a_limit() -> None:
    async def respond(_: httpx.Request) -> httpx.Response:
        for _turn in range(3):
            await asyncio.sleep(0)  # a response that comes in the same turn meets no timer
        return httpx.Response(200, json=examples.FINISHED_CALL)

    transport = httpx.MockTransport(respond)
    async with RingbackClient("http://r.example", transport=transport, timeout_seconds=math.inf) as client:
        call = await client.call("call_1")

    assert call.final
