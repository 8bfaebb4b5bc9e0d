"""Clients disconnect at every moment; their calls end as specified, and no task remains."""

import asyncio
import json
import random
from typing import Any, Final

import pytest

from tests.interaction.gateway.conftest import ELICITATION_CAPABILITY, GatewayHarness
from tests.interaction.gateway_hostile.conftest import encode_request, routing_headers
from tests.interaction.gateway_hostile.connections import open_raw_request, wait_until_released
from tests.support.engine import wait_until
from tests.support.mcp_wire import MODERN, Json
from tests.support.upstreams import WAIT_SECONDS

UPSTREAMS: Final = ("library", "old-paint", "paint")

pytestmark = pytest.mark.requirement("R13")

CUTS: Final = 40
CUTS_DEEP: Final = 1_000
LOOP_TURNS_MAX: Final = 150
"""Turns of the event loop; a call of a fast tool ends within them."""
SEED: Final = 20261120


async def cut_connection(gate: GatewayHarness, headers: dict[str, Any], body: bytes, *, path: str, turns: int) -> None:
    """Send a request, and disconnect `turns` turns of the event loop later."""

    async def send() -> None:
        async with open_raw_request(gate, "POST", headers, body, path=path) as (_, reader):
            await reader.read()

    asking = asyncio.create_task(send())
    for _ in range(turns):
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def wait_until_ended(gate: GatewayHarness, principal: str) -> list[Json]:
    """All calls of a principal once they have ended. A cancelled request may still start one, so one check is not enough."""
    calls: list[Json] = []

    async def over() -> bool:
        nonlocal calls
        calls = (await gate.request_rest("GET", "/v1/calls?limit=100", principal=principal)).json()["calls"]
        return all(call["status"] != "working" for call in calls)

    await wait_until(over)
    return calls


async def read_baseline(gate: GatewayHarness, principal: str) -> int:
    """The number of asyncio tasks after a client of each era has come and gone."""
    params: Json = {"name": "talk", "arguments": {}}
    await (await gate.make_modern_client("library", principal=principal)).request("tools/call", params)
    async with gate.open_legacy_session("library", principal=principal) as session:
        await session.request("tools/call", params)
    await wait_until_ended(gate, principal)
    await asyncio.sleep(0)
    return len(asyncio.all_tasks())


@pytest.mark.sqlite_only  # it counts the tasks of the process, and PostgreSQL's lanes keep some
async def test_a_modern_call_whose_client_disconnects_at_any_time_ends(gate: GatewayHarness, *, deep: bool) -> None:
    """A stored call completes; none stays running, also if the disconnect is between commit and response."""
    tasks, chance = await read_baseline(gate, "ida"), random.Random(SEED)
    params: Json = {"name": "talk", "arguments": {"levels": ["info"]}}
    requested = {"authorization": f"Bearer {await gate.get_api_key('ida')}", "mcp-protocol-version": MODERN}
    headers = {**requested, **routing_headers("tools/call", params)}
    declared: Json = {"io.modelcontextprotocol/clientCapabilities": {}, "io.modelcontextprotocol/logLevel": "info"}
    body = encode_request("tools/call", params, meta={**declared, "progressToken": "p"})
    for _ in range(CUTS_DEEP if deep else CUTS):
        await cut_connection(gate, headers, body, path="/mcp/library", turns=chance.randrange(LOOP_TURNS_MAX))
    assert {call["status"] for call in await wait_until_ended(gate, "ida")} == {"completed"}
    await wait_until_released(gate, tasks)


@pytest.mark.sqlite_only  # it counts the tasks of the process, and PostgreSQL's lanes keep some
async def test_a_legacy_call_whose_client_disconnects_at_any_time_completes(
    gate: GatewayHarness, *, deep: bool
) -> None:
    tasks, chance = await read_baseline(gate, "eve"), random.Random(SEED)
    async with gate.open_legacy_session("library", principal="eve") as session:
        for number in range(CUTS_DEEP if deep else CUTS):
            params: Json = {"name": "talk", "arguments": {}, "_meta": {"progressToken": number}}
            body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()
            await cut_connection(
                gate, session.headers, body, path="/mcp/library", turns=chance.randrange(LOOP_TURNS_MAX)
            )
        assert {call["status"] for call in await wait_until_ended(gate, "eve")} == {"completed"}
        assert "tools" in await session.request("tools/list", {})
    await wait_until_released(gate, tasks)


async def test_a_question_of_a_disconnected_client_stays_open_and_can_be_answered_elsewhere(
    gate: GatewayHarness,
) -> None:
    async with gate.open_legacy_session("old-paint", principal="una", capabilities=ELICITATION_CAPABILITY) as session:
        async with session.open_request("tools/call", {"name": "ask", "arguments": {}}) as frames:
            await frames.read_message("elicitation/create")
        (call,) = (await gate.request_rest("GET", "/v1/calls?status=input_required", principal="una")).json()["calls"]
        answers = {key: {"action": "accept", "content": {"colour": "red"}} for key in call["input_requests"]}
        await gate.request_rest("POST", f"/v1/calls/{call['id']}/input", principal="una", json={"responses": answers})
        assert (await gate.wait_until_ended(call["id"], principal="una"))["outcome"] == "result"
        assert "tools" in await session.request("tools/list", {})


async def test_a_task_of_a_disconnected_client_continues_and_can_be_awaited_again(gate: GatewayHarness) -> None:
    async with gate.open_legacy_session("paint", principal="una") as session:
        created = await session.request("tools/call", {"name": "hold", "arguments": {}, "task": {}})
        await gate.interop.wait_until_held()
        wanted: Json = {"taskId": created["task"]["taskId"]}
        for number in range(20):
            body = json.dumps({"jsonrpc": "2.0", "id": f"w{number}", "method": "tasks/result", "params": wanted})
            await cut_connection(gate, session.headers, body.encode(), path="/mcp/paint", turns=number)
        waiting = asyncio.create_task(session.request("tasks/result", wanted))
        gate.interop.release.set()
        assert (await asyncio.wait_for(waiting, WAIT_SECONDS))["content"][0]["text"] == "held"
