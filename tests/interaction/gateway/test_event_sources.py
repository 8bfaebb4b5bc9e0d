"""A task and a pending result say how to subscribe to the end of their call, and a late subscriber still gets it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.interaction.gateway.conftest import GatewayHarness, running_gateway
from tests.interaction.gateway.test_event_polls import EVENTS, NOTHING_DECLARED
from tests.interaction.gateway.test_event_streams import EVENT, open_stream
from tests.interaction.gateway.test_event_subscriptions import subscribe
from tests.support.mcp_wire import TASKS, Json, ModernClient

UPSTREAMS: Final = ("plain",)

EVENT_SOURCE: Final = "ringback/eventSource"
HOLD: Final[Json] = {"name": "hold", "arguments": {"text": "late"}}
TASKS_DECLARED: Final[Json] = {"extensions": {TASKS: {}}}


async def start_held_call(gate: GatewayHarness, client: ModernClient, declare: Json, **meta: str) -> Json:
    """The result of a call that outlives its response; then the call ends."""
    named = {"_meta": {f"ringback/{key}": value for key, value in meta.items()}}
    result = await client.request("tools/call", {**HOLD, **named}, declare=declare)
    gate.plain.release.set()
    await gate.wait_until_ended(result["_meta"]["ringback/callId"])
    return result


@pytest.mark.parametrize("declare", [NOTHING_DECLARED, TASKS_DECLARED], ids=["pending", "task"])
async def test_a_late_subscriber_gets_the_end_that_happened_before_in_every_mode(
    gate: GatewayHarness, declare: Json
) -> None:
    client = await gate.make_modern_client("plain")
    correlation_id = f"late-{'task' if declare else 'pending'}"

    result = await start_held_call(gate, client, declare, correlationId=correlation_id)

    source = result["_meta"][EVENT_SOURCE]
    wanted = {"name": source["name"], "arguments": source["arguments"], "cursor": source["initialCursor"]}
    page = await client.request("events/poll", wanted, declare=NOTHING_DECLARED)
    async with open_stream(client, **wanted) as frames:
        streamed = await frames.read_message(EVENT)
    await subscribe(client, f"{gate.callback_receiver.url}?{correlation_id}", **wanted)
    called_back = await gate.callback_receiver.wait_for_callback(correlation_id)
    (polled,) = page["events"]
    assert polled["data"]["call_id"] == result["_meta"]["ringback/callId"]
    assert polled["eventId"] == streamed["params"]["eventId"] == called_back.event_id
    assert page["truncated"] is False


async def test_a_task_has_the_same_event_source_whenever_it_is_read(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client("plain")
    created = await start_held_call(gate, client, TASKS_DECLARED)

    task = await client.request("tasks/get", {"taskId": created["taskId"]}, declare=TASKS_DECLARED)

    assert task["_meta"][EVENT_SOURCE] == created["_meta"][EVENT_SOURCE]


async def test_a_legacy_task_has_an_event_source(gate: GatewayHarness) -> None:
    async with gate.open_legacy_session("plain") as session:
        created = await session.request("tools/call", {**HOLD, "task": {}})
        gate.plain.release.set()

        task = await session.request("tasks/get", {"taskId": created["task"]["taskId"]})

    source = created["_meta"][EVENT_SOURCE]
    assert source["arguments"] == {"call_id": created["task"]["taskId"]}
    assert task["_meta"][EVENT_SOURCE] == source


@pytest.mark.parametrize("extensions", [[TASKS], [TASKS, EVENTS]])
async def test_the_drafts_field_is_sent_if_it_is_enabled_and_the_client_declares_events(
    tmp_path: Path, extensions: Sequence[str]
) -> None:
    declare: Json = {"extensions": {extension: {} for extension in extensions}}
    async with running_gateway(tmp_path, only={"plain"}, task_event_source=True, task_grace_seconds=0.0) as gate:
        client = await gate.make_modern_client("plain")

        created = await start_held_call(gate, client, declare)

    source = created["_meta"][EVENT_SOURCE]
    draft = {"name": source["name"], "input": source["arguments"], "initialCursor": source["initialCursor"]}
    assert created.get("eventSource") == (draft if EVENTS in extensions else None)
