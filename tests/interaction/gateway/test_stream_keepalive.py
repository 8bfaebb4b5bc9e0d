"""A stream of any kind sends bytes at least every 15 s, because proxies close silent ones."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import httpx
import pytest
from mcp.server import _streamable_http_modern
from sse_starlette import EventSourceResponse

from ringback.mcp_server import request_events
from ringback.protocol.mcp_events import endpoint
from ringback.services.events.event_streams import HEARTBEAT_SECONDS
from ringback.services.live import lists
from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness
from tests.support.mcp_wire import Json, JsonRpcMessages
from tests.support.upstreams import WAIT_SECONDS

UPSTREAMS: Final = ("paint",)

SILENCE_SECONDS_MAX: Final = 15.0
PING: Final = b": ping"


def test_no_stream_is_silent_for_more_than_15_seconds() -> None:
    """The SDK and its library send some of the pings; an update that changes them must not go unnoticed."""
    intervals = [
        request_events.PING_SECONDS,
        endpoint.HEARTBEAT_SECONDS,
        lists.HEARTBEAT_SECONDS,
        EventSourceResponse.DEFAULT_PING_INTERVAL,
        _streamable_http_modern._SSE_PING_INTERVAL,  # pyright: ignore[reportPrivateUsage] - it has no other name
        HEARTBEAT_SECONDS,
    ]
    assert max(intervals) <= SILENCE_SECONDS_MAX


@pytest.fixture
def frequent_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventSourceResponse, "DEFAULT_PING_INTERVAL", 0.02)
    monkeypatch.setattr(_streamable_http_modern, "_SSE_PING_INTERVAL", 0.02)
    monkeypatch.setattr(request_events, "PING_SECONDS", 0.02)


@asynccontextmanager
async def open_stream(gate: GatewayHarness, kind: str) -> AsyncGenerator[httpx.Response]:
    params: Json = {"name": "wait", "arguments": {}}
    if kind == "modern":
        client = await gate.make_modern_client()
        opened: AbstractAsyncContextManager[JsonRpcMessages] = client.open_request(
            "tools/call", params, declare=NO_CAPABILITIES
        )
        async with opened as frames:
            yield frames.response
        return
    async with gate.open_legacy_session() as session:
        opened = session.open_request("tools/call", params) if kind == "legacy" else session.open_event_stream()
        async with opened as frames:
            yield frames.response


@pytest.mark.requirement("R14")
@pytest.mark.usefixtures("frequent_pings")
@pytest.mark.parametrize("kind", ["modern", "legacy", "session"])
async def test_a_silent_stream_gets_pings(gate: GatewayHarness, kind: str) -> None:
    """The response to a tool call of both eras, and the own stream of a legacy session."""
    received = b""
    async with asyncio.timeout(WAIT_SECONDS), open_stream(gate, kind) as response:
        chunks: Any = response.aiter_bytes()
        while received.count(PING) < 2:
            received += await anext(chunks)
    gate.interop.release.set()
