"""What a listener makes of the responses to the callbacks that it forwards."""

import asyncio
from datetime import UTC, datetime
from typing import Final

import pytest

from ringback.cli.durable_listener.forwarding import ForwardHandler, create_http_client
from ringback.cli.durable_listener.handlers import Failed, ReceivedCallback
from ringback.receiver import Callback, parse
from ringback.signing.secrets import SECRET_BYTES, generate_secret
from tests.support.raw_http_server import RawServer, serving_raw

BODY: Final = b'{"eventId":"evt_1","name":"call.finished","timestamp":"2026-11-22T10:00:00Z","data":{}}'


@pytest.mark.parametrize("header", ["location: mailto:nobody", "location: http://xn--/", "set-cookie: session=\xff"])
async def test_a_response_with_an_unreadable_header_is_a_failure_of_this_callback_and_not_of_the_listener(
    header: str,
) -> None:
    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 302 Found\r\n{header}\r\ncontent-length: 0\r\n\r\n".encode("latin-1"))
        await writer.drain()

    server, callback = RawServer(), parse(BODY)
    assert isinstance(callback, Callback)
    received = ReceivedCallback(event_id="evt_1", callback=callback, body=BODY, attempt=1)
    async with serving_raw(redirect, server), create_http_client() as http:
        handler = ForwardHandler(
            server.url,
            secret=generate_secret(b"\x01" * SECRET_BYTES),
            subscription_id="listen_1",
            http=http,
            current_time=lambda: datetime(2026, 11, 22, tzinfo=UTC),
        )
        outcomes = [await handler.handle_callback(received) for _ in range(2)]

    assert outcomes == [Failed(f"{server.url} responded with 302")] * 2
