"""The stream of a session for messages outside requests stays open, whatever cuts it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

from ringback.upstreams.faults import FaultCounter
from ringback.upstreams.transports.guarded_http import GuardedTransport
from ringback.upstreams.transports.large_results import LargeResults
from ringback.upstreams.transports.own_streams import STABLE_AFTER_SECONDS
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS

URL: Final = "http://upstream.example/mcp"
EVENT_STREAM: Final = {"content-type": "text/event-stream"}
SOON: Final = b"retry: 1\n\n"
"""The SDK opens the stream again after a millisecond."""
CHANGE: Final = b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'
Step = httpx2.Response | Exception


class BrokenStream(httpx2.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield SOON
        raise httpx2.RemoteProtocolError("the upstream disconnected")


class ScriptedUpstream(httpx2.AsyncBaseTransport):
    """A legacy server, with these responses to one GET after the other. Then GET waits."""

    def __init__(self, *steps: Step) -> None:
        self._steps = list(steps)
        self.get_count = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "result": {}}
            return httpx2.Response(200, json=body, headers={"mcp-session-id": "s1"})
        if request.method == "GET":
            self.get_count += 1
            if not self._steps:
                await asyncio.Event().wait()
            step = self._steps.pop(0)
            if isinstance(step, Exception):
                raise step
            return step
        return httpx2.Response(200)


def broken_stream() -> httpx2.Response:
    return httpx2.Response(200, headers=EVENT_STREAM, stream=BrokenStream())


def whole_stream() -> httpx2.Response:
    return httpx2.Response(200, headers=EVENT_STREAM, content=SOON + CHANGE)


@asynccontextmanager
async def open_session(upstream: ScriptedUpstream, clock: FakeClock) -> AsyncGenerator[asyncio.Queue[str]]:
    """A session of the SDK's transport, and the methods of the notifications that it gets."""
    transport = GuardedTransport(upstream, faults=FaultCounter("stage", clock=clock), large_results=LargeResults())
    methods = asyncio.Queue[str]()
    async with (
        httpx2.AsyncClient(transport=transport, trust_env=False) as http,
        streamable_http_client(URL, http_client=http) as (received, sent),
    ):
        await sent.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="initialize", params={})))
        await received.receive()
        await sent.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")))

        async def read() -> None:
            async for message in received:
                if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCNotification):
                    methods.put_nowait(message.message.method)

        reading = asyncio.create_task(read())
        try:
            yield methods
        finally:
            reading.cancel()


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([broken_stream() for _ in range(5)], id="cut again and again"),
        pytest.param([broken_stream(), *(httpx2.ConnectError("refused") for _ in range(5))], id="away for a while"),
        pytest.param([broken_stream(), *(httpx2.Response(503) for _ in range(5))], id="away behind a proxy"),
    ],
)
async def test_a_notification_arrives_after_the_stream_was_lost_several_times(steps: list[Step]) -> None:
    clock = FakeClock()
    async with (
        asyncio.timeout(WAIT_SECONDS),
        open_session(ScriptedUpstream(*steps, whole_stream()), clock) as methods,
    ):
        assert await methods.get() == "notifications/tools/list_changed"

    assert clock.monotonic() > 1 + 2 + 4 + 8  # the pauses grow


async def test_a_stream_that_lasts_is_opened_again_without_a_pause() -> None:
    clock = FakeClock()

    class LastingStream(BrokenStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            clock.advance(STABLE_AFTER_SECONDS)
            async for each in super().__aiter__():
                yield each

    lasting = [httpx2.Response(200, headers=EVENT_STREAM, stream=LastingStream()) for _ in range(5)]
    async with (
        asyncio.timeout(WAIT_SECONDS),
        open_session(ScriptedUpstream(*lasting, whole_stream()), clock) as methods,
    ):
        await methods.get()

    assert clock.monotonic() == 5 * STABLE_AFTER_SECONDS


async def test_a_server_without_such_a_stream_is_not_asked_for_it_again_and_again() -> None:
    upstream, clock = ScriptedUpstream(*(httpx2.ConnectError("refused") for _ in range(9))), FakeClock()
    transport = GuardedTransport(upstream, faults=FaultCounter("stage", clock=clock), large_results=LargeResults())
    async with httpx2.AsyncClient(transport=transport, trust_env=False) as http:
        with pytest.raises(httpx2.ConnectError):
            await http.get(URL)

    assert upstream.get_count == 1
