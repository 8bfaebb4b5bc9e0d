"""Two principals at work side by side, over every door: whatever is asked for, nobody is told of what is another's."""

import json
import random
from collections.abc import Awaitable, Callable
from typing import Final

import pytest
from mcp_types import INVALID_PARAMS

from tests.interaction.gateway.conftest import NO_CAPABILITIES, Gate
from tests.support.mcp_wire import Json, Modern, Refused

PRINCIPALS: Final = ("alice", "bob")
STEPS: Final = 80
STEPS_DEEP: Final = 5_000
SEED: Final = 20260728

Look = Callable[[Gate, str, str], Awaitable[bool]]
"""Asks as a principal for a call; whether anything was told of it."""


async def over_rest(gate: Gate, principal: str, call_id: str) -> bool:
    return (await gate.rest("GET", f"/v1/calls/{call_id}", principal=principal)).status_code == 200


async def its_result_over_rest(gate: Gate, principal: str, call_id: str) -> bool:
    return (await gate.rest("GET", f"/v1/calls/{call_id}/result", principal=principal)).status_code in {200, 409}


async def by_cancelling_it(gate: Gate, principal: str, call_id: str) -> bool:
    return (await gate.rest("POST", f"/v1/calls/{call_id}/cancel", principal=principal)).status_code == 200


async def as_a_resource(gate: Gate, principal: str, call_id: str) -> bool:
    return await _told(gate, principal, "resources/read", {"uri": f"ringback://calls/{call_id}"})


async def as_a_task(gate: Gate, principal: str, call_id: str) -> bool:
    return await _told(gate, principal, "tasks/get", {"taskId": call_id})


async def with_our_tool(gate: Gate, principal: str, call_id: str) -> bool:
    client = await gate.modern(principal=principal)
    params: Json = {"name": "ringback_get_call", "arguments": {"call_id": call_id}}
    return not (await client.result("tools/call", params)).get("isError", False)


async def in_the_lists(gate: Gate, principal: str, call_id: str) -> bool:
    listed = (await gate.rest("GET", "/v1/calls?limit=100", principal=principal)).text
    client = await gate.modern(principal=principal)
    told = await client.result("tools/call", {"name": "ringback_list_calls", "arguments": {"limit": 50}})
    events = (await gate.rest("GET", "/v1/events?limit=100", principal=principal)).text
    return call_id in listed or call_id in json.dumps(told) or call_id in events


LOOKS: Final[tuple[Look, ...]] = (
    over_rest,
    its_result_over_rest,
    by_cancelling_it,
    as_a_resource,
    as_a_task,
    with_our_tool,
)


@pytest.mark.requirement("R25")
async def test_nobody_is_ever_told_of_anothers_calls(gate: Gate, *, deep: bool) -> None:
    chance = random.Random(SEED)
    owners: dict[str, str] = {}
    for step in range(STEPS_DEEP if deep else STEPS):
        principal = chance.choice(PRINCIPALS)
        if not owners or chance.random() < 0.2:
            owners[await _started(gate, principal, chance)] = principal
            continue
        call_id, owner = chance.choice(list(owners.items()))
        look = chance.choice(LOOKS)
        told = await look(gate, principal, call_id)
        assert told is (owner == principal), f"step {step} of seed {SEED}: {look.__name__} as {principal} of {owner}'s"
        if owner != principal and chance.random() < 0.1:
            assert not await in_the_lists(gate, principal, call_id)


async def _started(gate: Gate, principal: str, chance: random.Random) -> str:
    client = await gate.modern(chance.choice(["paint", "slow-paint"]), principal=principal)
    answer = await client.result("tools/call", {"name": "count", "arguments": {}}, declare=NO_CAPABILITIES)
    call_id: str = answer["_meta"]["ringback/callId"]
    return call_id


async def _told(gate: Gate, principal: str, method: str, params: Json) -> bool:
    client: Modern = await gate.modern(principal=principal)
    try:
        await client.result(method, params)
    except Refused as refused:
        return refused.code != INVALID_PARAMS
    return True
