"""A request that has ended is not in memory until the garbage collector runs: its body and its arguments may be large."""

import gc
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Final

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from ringback.domain.call import Call
from ringback.mcp_server.request_context import RequestContext
from ringback.runner.leased_call import LeasedCall
from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness
from tests.support.mcp_wire import Json, LegacyClientSession, ModernClient

UPSTREAMS: Final = ("paint", "plain")

CALLS = 8
KEPT_MAX = 3
"""Of each kind: the last request of each connection, and what the last call leaves until its callback is sent."""
COUNT = {"name": "count", "arguments": {}, "_meta": {"progressToken": "count"}}
"""The tool reports progress, so that helpers run beside the wait for its response."""


def count_kept() -> Counter[type]:
    kinds = (RequestResponseCycle, RequestContext, LeasedCall, Call)
    return Counter(type(each) for each in gc.get_objects() if isinstance(each, kinds))


async def call_modern(client: ModernClient) -> Json:
    return await client.request("tools/call", COUNT, declare=NO_CAPABILITIES)


@pytest.fixture
async def legacy(gate: GatewayHarness) -> AsyncGenerator[LegacyClientSession]:
    async with gate.open_legacy_session("paint") as session:
        yield session


@pytest.mark.usefixtures("without_garbage_collector")
async def test_modern_calls_leave_nothing_to_the_garbage_collector(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client("paint")
    await call_modern(client)
    before = count_kept()
    for _ in range(CALLS):
        await call_modern(client)

    assert max((count_kept() - before).values(), default=0) <= KEPT_MAX


@pytest.mark.usefixtures("without_garbage_collector")
async def test_calls_of_a_legacy_session_leave_nothing_to_the_garbage_collector(legacy: LegacyClientSession) -> None:
    await legacy.request("tools/call", COUNT)
    before = count_kept()
    for _ in range(CALLS):
        await legacy.request("tools/call", COUNT)

    assert max((count_kept() - before).values(), default=0) <= KEPT_MAX


@pytest.mark.usefixtures("without_garbage_collector")
async def test_calls_that_their_upstream_refuses_leave_nothing_to_the_garbage_collector(gate: GatewayHarness) -> None:
    await start_refused(gate)
    before = count_kept()
    for _ in range(CALLS):
        await start_refused(gate)

    assert max((count_kept() - before).values(), default=0) <= KEPT_MAX


async def start_refused(gate: GatewayHarness) -> None:
    body: Json = {"upstream": "plain", "tool": "refuse", "arguments": {}, "wait_seconds": 30}
    response = await gate.request_rest("POST", "/v1/calls", json=body)
    assert response.json()["call"]["outcome"] == "upstream_error", response.text
