"""Two principals work at the same time on every surface; neither sees data of the other."""

import json
import random
from collections.abc import Awaitable, Callable
from typing import Final

import pytest
from mcp_types import INVALID_PARAMS

from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, ModernClient

UPSTREAMS: Final = ("paint", "slow-paint")

PRINCIPALS: Final = ("alice", "bob")
STEPS: Final = 80
STEPS_DEEP: Final = 5_000
SEED: Final = 20260728

ReadProbe = Callable[[GatewayHarness, str, str], Awaitable[bool]]
"""Requests a call as a principal; returns whether the response contains anything about it."""


async def read_over_rest(gate: GatewayHarness, principal: str, call_id: str) -> bool:
    return (await gate.request_rest("GET", f"/v1/calls/{call_id}", principal=principal)).status_code == 200


async def read_result_over_rest(gate: GatewayHarness, principal: str, call_id: str) -> bool:
    return (await gate.request_rest("GET", f"/v1/calls/{call_id}/result", principal=principal)).status_code in {
        200,
        409,
    }


async def cancel_over_rest(gate: GatewayHarness, principal: str, call_id: str) -> bool:
    return (await gate.request_rest("POST", f"/v1/calls/{call_id}/cancel", principal=principal)).status_code == 200


async def read_as_resource(gate: GatewayHarness, principal: str, call_id: str) -> bool:
    return await request_outcome(gate, principal, "resources/read", {"uri": f"ringback://calls/{call_id}"})


async def read_as_task(gate: GatewayHarness, principal: str, call_id: str) -> bool:
    return await request_outcome(gate, principal, "tasks/get", {"taskId": call_id})


async def read_with_builtin_tool(gate: GatewayHarness, principal: str, call_id: str) -> bool:
    client = await gate.make_modern_client(principal=principal)
    params: Json = {"name": "ringback_get_call", "arguments": {"call_id": call_id}}
    return not (await client.request("tools/call", params)).get("isError", False)


async def find_in_lists(gate: GatewayHarness, principal: str, call_id: str) -> bool:
    listed = (await gate.request_rest("GET", "/v1/calls?limit=100", principal=principal)).text
    client = await gate.make_modern_client(principal=principal)
    returned = await client.request("tools/call", {"name": "ringback_list_calls", "arguments": {"limit": 50}})
    events = (await gate.request_rest("GET", "/v1/events?limit=100", principal=principal)).text
    return call_id in listed or call_id in json.dumps(returned) or call_id in events


READ_PROBES: Final[tuple[ReadProbe, ...]] = (
    read_over_rest,
    read_result_over_rest,
    cancel_over_rest,
    read_as_resource,
    read_as_task,
    read_with_builtin_tool,
)


@pytest.mark.requirement("R25")
async def test_a_principal_never_sees_another_principals_calls(gate: GatewayHarness, *, deep: bool) -> None:
    chance = random.Random(SEED)
    owners: dict[str, str] = {}
    for step in range(STEPS_DEEP if deep else STEPS):
        principal = chance.choice(PRINCIPALS)
        if not owners or chance.random() < 0.2:
            owners[await start_call(gate, principal, chance)] = principal
            continue
        call_id, owner = chance.choice(list(owners.items()))
        look = chance.choice(READ_PROBES)
        returned = await look(gate, principal, call_id)
        assert returned is (owner == principal), (
            f"step {step} of seed {SEED}: {look.__name__} as {principal} of {owner}'s"
        )
        if owner != principal and chance.random() < 0.1:
            assert not await find_in_lists(gate, principal, call_id)


async def start_call(gate: GatewayHarness, principal: str, chance: random.Random) -> str:
    client = await gate.make_modern_client(chance.choice(["paint", "slow-paint"]), principal=principal)
    answer = await client.request("tools/call", {"name": "count", "arguments": {}}, declare=NO_CAPABILITIES)
    call_id: str = answer["_meta"]["ringback/callId"]
    return call_id


async def request_outcome(gate: GatewayHarness, principal: str, method: str, params: Json) -> bool:
    client: ModernClient = await gate.make_modern_client(principal=principal)
    try:
        await client.request(method, params)
    except JsonRpcErrorResponse as refused:
        return refused.code != INVALID_PARAMS
    return True
