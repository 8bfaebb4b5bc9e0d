"""Clients that vanish when it suits least: what they began ends as it should, and nothing of them stays."""

import asyncio
import json
import random
from typing import Any, Final

import pytest

from tests.interaction.gateway.conftest import ASKABLE, Gate
from tests.interaction.gateway_hostile.conftest import routing, wire
from tests.interaction.gateway_hostile.connections import all_given_back, raw
from tests.support.engine import until
from tests.support.mcp_wire import MODERN, Json
from tests.support.upstreams import WAIT_SECONDS

pytestmark = pytest.mark.requirement("R13")

CUTS: Final = 40
CUTS_DEEP: Final = 1_000
TURNS_MAX: Final = 150
"""Of the event loop; a call of a fast tool is over by then."""
SEED: Final = 20261120


async def cut(gate: Gate, headers: dict[str, Any], body: bytes, *, path: str, turns: int) -> None:
    """Send a request, and be gone so many turns of the event loop later."""

    async def ask() -> None:
        async with raw(gate, "POST", headers, body, path=path) as (_, reader):
            await reader.read()

    asking = asyncio.create_task(ask())
    for _ in range(turns):
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def ended(gate: Gate, principal: str) -> list[Json]:
    """All calls of a principal's, which end by themselves. One look decides: a request that was cut off may still begin one."""
    calls: list[Json] = []

    async def over() -> bool:
        nonlocal calls
        calls = (await gate.rest("GET", "/v1/calls?limit=100", principal=principal)).json()["calls"]
        return all(call["status"] != "working" for call in calls)

    await until(over)
    return calls


async def baseline(gate: Gate, principal: str) -> int:
    """Tasks that are there when a client of each era has come and gone."""
    params: Json = {"name": "talk", "arguments": {}}
    await (await gate.modern("library", principal=principal)).result("tools/call", params)
    async with gate.session("library", principal=principal) as session:
        await session.result("tools/call", params)
    await ended(gate, principal)
    await asyncio.sleep(0)
    return len(asyncio.all_tasks())


async def test_a_call_of_today_that_was_left_at_any_moment_ends(gate: Gate, *, deep: bool) -> None:
    """Cancelled, or done before anybody noticed; never forgotten half-way, also between its commit and its answer."""
    tasks, chance = await baseline(gate, "ida"), random.Random(SEED)
    params: Json = {"name": "talk", "arguments": {"levels": ["info"]}}
    asked = {"authorization": f"Bearer {await gate.key('ida')}", "mcp-protocol-version": MODERN}
    headers = {**asked, **routing("tools/call", params)}
    declared: Json = {"io.modelcontextprotocol/clientCapabilities": {}, "io.modelcontextprotocol/logLevel": "info"}
    body = wire("tools/call", params, meta={**declared, "progressToken": "p"})
    for _ in range(CUTS_DEEP if deep else CUTS):
        await cut(gate, headers, body, path="/mcp/library", turns=chance.randrange(TURNS_MAX))
    assert {call["status"] for call in await ended(gate, "ida")} <= {"completed", "cancelled"}
    await all_given_back(gate, tasks)


async def test_a_call_of_a_session_that_was_left_at_any_moment_is_done(gate: Gate, *, deep: bool) -> None:
    tasks, chance = await baseline(gate, "eve"), random.Random(SEED)
    async with gate.session("library", principal="eve") as session:
        for number in range(CUTS_DEEP if deep else CUTS):
            params: Json = {"name": "talk", "arguments": {}, "_meta": {"progressToken": number}}
            body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()
            await cut(gate, session.headers, body, path="/mcp/library", turns=chance.randrange(TURNS_MAX))
        assert {call["status"] for call in await ended(gate, "eve")} == {"completed"}
        assert "tools" in await session.result("tools/list", {})
    await all_given_back(gate, tasks)


async def test_a_question_whose_client_has_vanished_stays_open_and_can_be_answered_elsewhere(gate: Gate) -> None:
    async with gate.session("old-paint", principal="una", capabilities=ASKABLE) as session:
        async with session.asking("tools/call", {"name": "ask", "arguments": {}}) as frames:
            await frames.next("elicitation/create")
        (call,) = (await gate.rest("GET", "/v1/calls?status=input_required", principal="una")).json()["calls"]
        answers = {key: {"action": "accept", "content": {"colour": "red"}} for key in call["input_requests"]}
        await gate.rest("POST", f"/v1/calls/{call['id']}/input", principal="una", json={"responses": answers})
        assert (await gate.ended(call["id"], principal="una"))["outcome"] == "result"
        assert "tools" in await session.result("tools/list", {})


async def test_a_task_whose_waiting_client_has_vanished_goes_on_and_is_waited_for_again(gate: Gate) -> None:
    async with gate.session("paint", principal="una") as session:
        created = await session.result("tools/call", {"name": "hold", "arguments": {}, "task": {}})
        await gate.paint.until_held()
        wanted: Json = {"taskId": created["task"]["taskId"]}
        for number in range(20):
            body = json.dumps({"jsonrpc": "2.0", "id": f"w{number}", "method": "tasks/result", "params": wanted})
            await cut(gate, session.headers, body.encode(), path="/mcp/paint", turns=number)
        waiting = asyncio.create_task(session.result("tasks/result", wanted))
        gate.paint.release.set()
        assert (await asyncio.wait_for(waiting, WAIT_SECONDS))["content"][0]["text"] == "held"
