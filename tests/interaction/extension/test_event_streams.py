"""Streams of a user's MCP server, and what its example serves."""

import runpy
from pathlib import Path
from typing import Any, Final

import pytest

from ringback.extension import Events
from ringback.extension.events import log_backend
from tests.support.event_servers import SHIPPED, OrderShipped, make_order_server, order_client
from tests.support.mcp_wire import JsonRpcErrorResponse, ModernClient

POLL: Final[dict[str, Any]] = {"name": SHIPPED, "arguments": {}, "cursor": None}
EXAMPLE: Final = Path(__file__).parents[3] / "scripts" / "examples" / "order_events.py"


async def test_an_idle_stream_has_heartbeats_with_cursors_and_no_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_backend, "HEARTBEAT_SECONDS", 0.05)
    lines: list[str] = []
    async with (
        order_client(make_order_server(Events.in_memory())) as client,
        client.open_request("events/stream", POLL) as frames,
    ):
        async for line in frames.response.aiter_lines():
            lines.append(line)
            if sum("notifications/events/heartbeat" in each for each in lines) == 3:
                break
    heartbeats = [line for line in lines if "heartbeat" in line]
    assert all('"cursor":"' in line for line in heartbeats)
    assert not [line for line in lines if line.startswith(":")]


async def test_a_heartbeat_has_the_place_after_events_of_others_which_send_nothing_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_backend, "HEARTBEAT_SECONDS", 0.05)
    events = Events.in_memory()
    async with (
        order_client(make_order_server(events)) as client,
        client.open_request("events/stream", {**POLL, "arguments": {"order_id": "o2"}}) as frames,
    ):
        start = (await frames.read_message("notifications/events/active"))["params"]["cursor"]
        await events.emit(OrderShipped(order_id="o1"))
        while (message := await frames.read_message())["params"]["cursor"] == start:
            assert message["method"] == "notifications/events/heartbeat"
        assert message["method"] == "notifications/events/heartbeat"
        wanted = await events.emit(OrderShipped(order_id="o2"))
        while (message := await frames.read_message())["method"] == "notifications/events/heartbeat":
            pass
    assert message["params"]["eventId"] == wanted


async def test_the_streams_of_one_principal_are_bounded_and_a_closed_one_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_backend, "STREAMS_WITHOUT_PRINCIPAL_MAX", 1)
    async with order_client(make_order_server(Events.in_memory())) as client:
        async with client.open_request("events/stream", POLL) as frames:
            await frames.read_message("notifications/events/active")
            with pytest.raises(JsonRpcErrorResponse) as refusal:
                await client.request("events/stream", POLL)
        while True:  # the server notices the closed stream
            async with client.open_request("events/stream", POLL) as frames:
                if (await frames.read_message()).get("method") == "notifications/events/active":
                    break
    assert (refusal.value.code, refusal.value.data) == (-32013, {"limit": "streams", "max": 1})


async def test_a_server_that_answers_with_json_only_refuses_a_stream() -> None:
    async with order_client(make_order_server(Events.in_memory()), json_response=True) as client:
        with pytest.raises(JsonRpcErrorResponse) as refusal:
            await client.request("events/stream", POLL)
    assert (refusal.value.code, refusal.value.data) == (-32014, {"feature": "deliveryMode", "value": "push"})


@pytest.mark.parametrize("cursor", ["", "nonsense", "MTpldmVudHM6OTk5LmRlYWRiZWVm"])
async def test_an_unknown_cursor_is_truncated_and_no_error(cursor: str) -> None:
    events = Events.in_memory()
    async with order_client(make_order_server(events)) as client:
        page = await client.request("events/poll", {**POLL, "cursor": cursor})
        event_id = await events.emit(OrderShipped(order_id="o1"))
        after = await client.request("events/poll", {**POLL, "cursor": page["cursor"]})
    assert page["truncated"] is True
    assert [event["eventId"] for event in after["events"]] == [event_id]


async def test_the_example_emits_from_a_tool_and_from_a_background_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example = runpy.run_path(str(EXAMPLE))
    counted: dict[str, Any] = {"name": "stock.counted", "arguments": {}, "cursor": None}
    async with order_client(example["server"]) as client:
        assert isinstance(client, ModernClient)
        listed = [each["name"] for each in (await client.request("events/list", {}))["events"]]
        start = await client.request("events/poll", POLL)
        await client.request("tools/call", {"name": "ship_order", "arguments": {"order_id": "o1"}})
        shipped = await client.request("events/poll", {**POLL, "cursor": start["cursor"]})
        since_start = await client.request("events/poll", {**counted, "cursor": "nonsense"})
    assert listed == [SHIPPED, "stock.counted"]
    assert [event["data"] for event in shipped["events"]] == [{"order_id": "o1", "carrier": "post"}]
    assert since_start["truncated"] is True
    assert (tmp_path / "events.db").exists()
