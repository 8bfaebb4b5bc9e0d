"""events/list and events/poll in both eras, over a real gateway."""

import asyncio
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from ringback.domain.cursor import LogPosition
from ringback.services.events import events
from ringback.services.events.events import EventPage, read_event_page
from tests.interaction.gateway.conftest import GatewayHarness
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, LegacyClientSession, ModernClient

UPSTREAMS: Final = ("paint", "plain")

EVENTS: Final = "io.modelcontextprotocol/events"
SEP_DECLARED: Final[Json] = {"extensions": {EVENTS: {}}}
NOTHING_DECLARED: Final[Json] = {}
OWN_NAMES: Final = ["call.finished", "call.input_required", "call.progress", "upstream.changed"]


async def poll(client: ModernClient, name: str = "call.finished", **params: Any) -> Json:
    return await client.request("events/poll", {"name": name, "arguments": {}, **params}, declare=NOTHING_DECLARED)


async def call_echo(client: ModernClient, text: str = "hello", **meta: str) -> str:
    """Call a tool; return the id of its call."""
    params = {
        "name": "echo",
        "arguments": {"text": text},
        "_meta": {f"ringback/{key}": value for key, value in meta.items()},
    }
    result = await client.request("tools/call", params, declare=NOTHING_DECLARED)
    call_id: str = result["_meta"]["ringback/callId"]
    return call_id


# -- capability --


async def test_both_spellings_of_the_capability_are_in_the_discovery_and_in_the_handshake(
    modern: ModernClient, session: LegacyClientSession
) -> None:
    discovered = await modern.request("server/discover", {})

    for capabilities in (discovered["capabilities"], session.initialize_result["capabilities"]):
        assert capabilities["events"] == {"listChanged": True}
        assert capabilities["extensions"][EVENTS] == {"listChanged": True}


# -- events/list --


@pytest.mark.parametrize("upstream", [None, "plain"])
async def test_every_event_type_is_listed_with_schemas_and_all_delivery_modes(
    gate: GatewayHarness, upstream: str | None
) -> None:
    client = await gate.make_modern_client(upstream)

    listed = await client.request("events/list", {}, declare=NOTHING_DECLARED)

    assert [each["name"] for each in listed["events"]] == OWN_NAMES
    assert listed["resultType"] == "complete"
    for event_type in listed["events"]:
        assert event_type["delivery"] == ["webhook", "push", "poll"]
        assert event_type["description"]
        Draft202012Validator.check_schema(event_type["inputSchema"])
        Draft202012Validator.check_schema(event_type["payloadSchema"])
        assert event_type["inputSchema"]["additionalProperties"] is False


async def test_a_legacy_client_lists_the_same_event_types_without_modern_members(
    session: LegacyClientSession, modern: ModernClient
) -> None:
    listed = await session.request("events/list", {})

    assert listed == {"events": (await modern.request("events/list", {}))["events"]}


async def test_a_cursor_of_another_list_is_refused_by_name(modern: ModernClient) -> None:
    with pytest.raises(JsonRpcErrorResponse) as refused:
        await modern.request("events/list", {"cursor": "abc"})

    assert (refused.value.code, refused.value.message.split(":")[0]) == (-32602, "InvalidParams")


# -- events/poll --


async def test_the_first_poll_has_no_events_and_the_next_has_those_since(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client("plain", principal="poller")
    await call_echo(client)

    first = await poll(client)
    call_id = await call_echo(client)
    second = await poll(client, cursor=first["cursor"])
    third = await poll(client, cursor=second["cursor"])

    assert (first["events"], first["truncated"], first["hasMore"]) == ([], False, False)
    assert [each["data"]["call_id"] for each in second["events"]] == [call_id]
    assert third["events"] == []
    assert first["nextPollMs"] >= 1000


async def test_a_poll_that_waits_reads_no_event_twice(gate: GatewayHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event that it does not ask for woke it, and it read all of them again: thousands of waiting polls are a load."""
    read_from: list[int] = []
    has_read = asyncio.Event()

    async def read_page(*arguments: Any, position: LogPosition, **options: Any) -> EventPage:
        read_from.append(position.seq)
        page = await read_event_page(*arguments, position=position, **options)
        has_read.set()
        return page

    client = await gate.make_modern_client("plain", principal="patient")
    cursor = (await poll(client))["cursor"]
    monkeypatch.setattr(events, "read_event_page", read_page)
    waiting = asyncio.create_task(
        poll(client, cursor=cursor, arguments={"client_session_id": "rare"}, timeoutMs=WAIT_SECONDS * 1000)
    )
    for session_id in ("other", "other", "rare"):
        async with asyncio.timeout(WAIT_SECONDS):
            await has_read.wait()
        has_read.clear()
        await call_echo(client, clientSessionId=session_id)
    page = await waiting

    assert [each["data"]["client_session_id"] for each in page["events"]] == ["rare"]
    assert read_from == sorted(read_from)
    assert read_from[-1] > read_from[0]


async def test_a_legacy_client_polls_the_same_events(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client("plain", principal="both-eras")
    first = await poll(client)
    await call_echo(client)
    modern_page = await poll(client, cursor=first["cursor"])

    async with gate.open_legacy_session("plain", principal="both-eras") as session:
        page = await session.request(
            "events/poll", {"name": "call.finished", "arguments": {}, "cursor": first["cursor"]}
        )

    assert page["events"] == modern_page["events"]
    assert page["cursor"] == modern_page["cursor"]
    assert "resultType" not in page
