"""events/stream in both eras, over a real gateway: the frames of the specification and nothing else."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from mcp.server import _streamable_http_modern
from sse_starlette import EventSourceResponse

from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal
from ringback.mcp_server import event_backend
from tests.interaction.gateway.conftest import GatewayHarness
from tests.interaction.gateway.test_event_polls import NOTHING_DECLARED, call_echo, poll
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, JsonRpcMessages, LegacyClientSession, ModernClient

UPSTREAMS: Final = ("plain",)

SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
ACTIVE: Final = "notifications/events/active"
EVENT: Final = "notifications/events/event"
HEARTBEAT: Final = "notifications/events/heartbeat"


@asynccontextmanager
async def open_stream(
    client: ModernClient | LegacyClientSession, name: str = "call.finished", **params: Any
) -> AsyncGenerator[JsonRpcMessages]:
    wanted: Json = {"name": name, "arguments": {}, **params}
    if isinstance(client, LegacyClientSession):
        async with client.open_request("events/stream", wanted) as frames:
            yield frames
    else:
        async with client.open_request("events/stream", wanted, declare=NOTHING_DECLARED) as frames:
            yield frames


@asynccontextmanager
async def open_client(
    gate: GatewayHarness, era: str, principal: str
) -> AsyncGenerator[ModernClient | LegacyClientSession]:
    if era == "modern":
        yield await gate.make_modern_client("plain", principal=principal)
    else:
        async with gate.open_legacy_session("plain", principal=principal) as session:
            yield session


ERAS: Final = pytest.mark.parametrize("era", ["modern", "legacy"])


@ERAS
async def test_a_stream_is_confirmed_first_and_then_has_each_event_with_its_cursor(
    gate: GatewayHarness, era: str
) -> None:
    caller = await gate.make_modern_client("plain", principal=f"streamer-{era}")
    async with open_client(gate, era, f"streamer-{era}") as client, open_stream(client) as frames:
        active = await frames.read_message()
        call_id = await call_echo(caller)
        event = await frames.read_message()

    assert active["method"] == ACTIVE
    assert active["params"]["truncated"] is False
    assert event["method"] == EVENT
    assert event["params"]["data"]["call_id"] == call_id
    polled = await poll(caller, cursor=active["params"]["cursor"])
    assert [each["eventId"] for each in polled["events"]] == [event["params"]["eventId"]]
    assert (await poll(caller, cursor=event["params"]["cursor"]))["events"] == []


@ERAS
async def test_every_frame_names_the_request_by_its_id(gate: GatewayHarness, era: str) -> None:
    async with open_client(gate, era, "ids") as client, open_stream(client) as frames:
        active = await frames.read_message()

    expected = client.last_id if isinstance(client, LegacyClientSession) else 1
    assert active["params"]["_meta"] == {SUBSCRIPTION_ID: expected}


@ERAS
async def test_a_stream_with_a_cursor_begins_with_the_events_since(gate: GatewayHarness, era: str) -> None:
    caller = await gate.make_modern_client("plain", principal=f"late-{era}")
    start = (await poll(caller))["cursor"]
    call_ids = [await call_echo(caller) for _ in range(3)]

    async with open_client(gate, era, f"late-{era}") as client, open_stream(client, cursor=start) as frames:
        active = await frames.read_message()
        events = [await frames.read_message() for _ in call_ids]

    assert active["params"]["cursor"] == start
    assert [each["params"]["data"]["call_id"] for each in events] == call_ids


@pytest.fixture
def frequent_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_backend, "HEARTBEAT_SECONDS", 0.02)


@ERAS
@pytest.mark.usefixtures("frequent_heartbeats")
async def test_an_idle_stream_has_heartbeats_with_the_cursor(gate: GatewayHarness, era: str) -> None:
    async with open_client(gate, era, "idle") as client, open_stream(client) as frames:
        active = await frames.read_message()
        heartbeats = [await frames.read_message() for _ in range(3)]

    assert {each["method"] for each in heartbeats} == {HEARTBEAT}
    assert {each["params"]["cursor"] for each in heartbeats} == {active["params"]["cursor"]}


@pytest.fixture
def frequent_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's pings, which are much more frequent than the heartbeats then."""
    monkeypatch.setattr(EventSourceResponse, "DEFAULT_PING_INTERVAL", 0.001)
    monkeypatch.setattr(_streamable_http_modern, "_SSE_PING_INTERVAL", 0.001)


@ERAS
@pytest.mark.usefixtures("frequent_heartbeats", "frequent_comments")
async def test_a_stream_has_no_comments(gate: GatewayHarness, era: str) -> None:
    received = b""
    async with open_client(gate, era, "silent") as client, open_stream(client) as frames:
        async with asyncio.timeout(WAIT_SECONDS):
            async for chunk in frames.response.aiter_raw():
                received += chunk
                if received.count(HEARTBEAT.encode()) >= 10:
                    break

    assert ACTIVE.encode() in received
    assert [line for line in received.splitlines() if line.startswith(b":")] == []


@ERAS
async def test_an_unknown_event_type_is_refused_without_a_stream(gate: GatewayHarness, era: str) -> None:
    async with open_client(gate, era, "unknown") as client:
        with pytest.raises(JsonRpcErrorResponse) as refused:
            async with open_stream(client, "call.finishd") as frames:
                await frames.read_response()

    assert (refused.value.code, refused.value.data) == (-32011, {"kind": "event"})
    assert refused.value.message.startswith("NotFound")


async def count_streams(gate: GatewayHarness, principal: str) -> int:
    """The streams that count against the principal's quota."""
    caller = Caller(principal=Principal(principal), scopes=DEFAULT_SCOPES)
    limits = await gate.ringback.app.services.insights.list_limits(caller)
    return next(limit.used for limit in limits if limit.name == "streams")


@ERAS
async def test_closing_the_request_ends_the_stream(gate: GatewayHarness, era: str) -> None:
    principal = f"leaver-{era}"
    async with open_client(gate, era, principal) as client:
        async with open_stream(client) as frames:
            await frames.read_message(ACTIVE)
            assert await count_streams(gate, principal) == 1
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                await asyncio.sleep(0)
                if not await count_streams(gate, principal):
                    return
