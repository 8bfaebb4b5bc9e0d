"""What a listener makes of the responses to the callbacks that it forwards."""

import asyncio
from datetime import UTC, datetime
from typing import Final

import pytest

from ringback.backoff import RETRY_AFTER_SECONDS_MAX
from ringback.cli.durable_listener import forwarding
from ringback.cli.durable_listener.forwarding import ForwardHandler, create_http_client
from ringback.cli.durable_listener.handlers import Failed, HandlerOutcome, ReceivedCallback
from ringback.receiver import Callback, parse
from ringback.signing.secrets import SECRET_BYTES, generate_secret
from tests.support.raw_http_server import RawServer, serving_raw
from tests.support.slow_bodies import send_slowly

BODY: Final = b'{"eventId":"evt_1","name":"call.finished","timestamp":"2026-11-22T10:00:00Z","data":{}}'


async def forward_callback(url: str) -> HandlerOutcome:
    callback = parse(BODY)
    assert isinstance(callback, Callback)
    async with create_http_client() as http:
        handler = ForwardHandler(
            url,
            secret=generate_secret(b"\x01" * SECRET_BYTES),
            subscription_id="listen_1",
            http=http,
            current_time=lambda: datetime(2026, 11, 22, tzinfo=UTC),
        )
        return await handler.handle_callback(
            ReceivedCallback(event_id="evt_1", callback=callback, body=BODY, attempt=1)
        )


@pytest.mark.parametrize("header", ["location: mailto:nobody", "location: http://xn--/", "set-cookie: session=\xff"])
async def test_a_response_with_an_unreadable_header_is_a_failure_of_this_callback_and_not_of_the_listener(
    header: str,
) -> None:
    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 302 Found\r\n{header}\r\ncontent-length: 0\r\n\r\n".encode("latin-1"))
        await writer.drain()

    server = RawServer()
    async with serving_raw(redirect, server):
        outcomes = [await forward_callback(server.url) for _ in range(2)]

    assert outcomes == [Failed(f"{server.url} responded with 302")] * 2


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("30", 30.0),
        ("Sun, 22 Nov 2026 00:02:00 GMT", 120.0),
        ("9" * 400, RETRY_AFTER_SECONDS_MAX),
        ("soon", 0.0),
    ],
)
async def test_a_receiver_s_retry_after_is_read_as_the_service_reads_it(asked: str, seconds: float) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 503 Busy\r\nretry-after: {asked}\r\ncontent-length: 0\r\n\r\n".encode())
        await writer.drain()

    server = RawServer()
    async with serving_raw(refuse, server):
        outcome = await forward_callback(server.url)

    assert outcome == Failed(f"{server.url} responded with 503", retry_after_seconds=seconds)


async def test_a_response_that_arrives_a_byte_at_a_time_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "ATTEMPT_SECONDS", 0.2)

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n")
        async for byte in send_slowly(b"x"):
            writer.write(byte)
            await writer.drain()

    server = RawServer()
    async with serving_raw(trickle, server):
        outcome = await forward_callback(server.url)

    assert outcome == Failed(f"{server.url} did not respond within 0.2 s")
