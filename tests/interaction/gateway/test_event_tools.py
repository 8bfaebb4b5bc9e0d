"""The tools with which a model reads events, after its client has woken it without their data."""

from typing import Any, Final

from tests.interaction.gateway.conftest import GatewayHarness
from tests.interaction.gateway.test_event_polls import NOTHING_DECLARED, call_echo
from tests.support.mcp_wire import Json, ModernClient

UPSTREAMS: Final = ("plain",)


async def call_tool(client: ModernClient, tool: str, **arguments: Any) -> Json:
    return await client.request("tools/call", {"name": tool, "arguments": arguments}, declare=NOTHING_DECLARED)


async def list_recent(client: ModernClient, **arguments: Any) -> list[Json]:
    result = await call_tool(client, "ringback_recent_events", **arguments)
    events: list[Json] = result["structuredContent"]["events"]
    return events


async def test_recent_events_are_the_latest_of_the_caller_newest_first(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client("plain", principal="recent")
    first, second = await call_echo(client), await call_echo(client, correlationId="second")
    await call_echo(await gate.make_modern_client("plain", principal="someone-else"))

    events = await list_recent(client)

    assert [each["data"]["call_id"] for each in events] == [second, first]
    assert await list_recent(client, limit=1) == events[:1]
    assert await list_recent(client, call_id=first) == events[1:]
    assert await list_recent(client, correlation_id="second") == events[:1]
    assert await list_recent(client, name="call.progress") == []


async def test_an_event_is_read_by_its_id(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client("plain", principal="by-id")
    await call_echo(client)
    (event,) = await list_recent(client)

    result = await call_tool(client, "ringback_get_event", event_id=event["eventId"])

    assert result["structuredContent"] == event
    assert result["isError"] is False


async def test_a_published_event_is_read_by_its_publishers_id(gate: GatewayHarness) -> None:
    published = {"name": "order.paid", "id": "order-1", "data": {"amount": 3}}
    answer = await gate.request_rest("POST", "/v1/events", principal="publisher", json=published)
    assert answer.status_code < 300, answer.text
    client = await gate.make_modern_client("plain", principal="publisher")

    result = await call_tool(client, "ringback_get_event", event_id="order-1")

    assert result["structuredContent"]["data"] == {"amount": 3}


async def test_another_principals_event_is_unknown_and_the_error_is_a_result_that_a_model_reads(
    gate: GatewayHarness,
) -> None:
    owner = await gate.make_modern_client("plain", principal="owner")
    await call_echo(owner)
    (event,) = await list_recent(owner)
    other = await gate.make_modern_client("plain", principal="other")

    foreign = await call_tool(other, "ringback_get_event", event_id=event["eventId"])
    unknown = await call_tool(other, "ringback_get_event", event_id="evt_01JD0000000000000000000000")

    assert foreign["isError"] is True
    assert foreign["content"] == unknown["content"]


async def test_an_id_whose_time_is_beyond_the_calendar_is_an_unknown_id(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client("plain", principal="dreamer")

    far = await call_tool(client, "ringback_get_event", event_id=f"evt_{'Z' * 26}")
    unknown = await call_tool(client, "ringback_get_event", event_id="evt_01JD0000000000000000000000")

    assert far["isError"] is True
    assert far["content"] == unknown["content"]
