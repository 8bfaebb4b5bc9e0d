"""A principal that stores large arguments is stopped at its quota, in both eras, and others are served."""

from collections.abc import AsyncGenerator
from typing import Final

import pytest

from tests.interaction.gateway.conftest import GatewayHarness, running_gateway
from tests.interaction.gateway_hostile.conftest import count_stored_calls
from tests.support.mcp_wire import JsonRpcErrorResponse

pytestmark = pytest.mark.requirement("R25")

QUOTA: Final = 100_000
LARGE: Final = {"name": "count", "arguments": {"ballast": "x" * 30_000}}


@pytest.fixture(scope="module")
async def shared_gate(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[GatewayHarness]:
    async with running_gateway(module_path_factory.mktemp("small"), quota_argument_bytes=QUOTA) as gate:
        yield gate


async def test_arguments_of_tool_calls_are_bounded_in_both_eras(gate: GatewayHarness) -> None:
    greedy = await gate.make_modern_client(principal="greedy")
    async with (
        gate.open_legacy_session(principal="greedy") as greedy_session,
        gate.open_legacy_session(principal="modest") as modest_session,
    ):
        for _ in range(3):
            await greedy.request("tools/call", LARGE)
        before = count_stored_calls(gate)

        for client in (greedy, greedy_session):
            with pytest.raises(JsonRpcErrorResponse, match="quota 'argument_bytes' of 100000 has no room") as refused:
                await client.request("tools/call", LARGE)
            assert (refused.value.data["quota"], refused.value.data["limit"]) == ("argument_bytes", QUOTA)
            assert refused.value.data["retry_after_seconds"] > 0

        assert count_stored_calls(gate) == before
        assert "tools" in await greedy.request("tools/list", {})
        for client in (await gate.make_modern_client(principal="modest"), modest_session):
            counted = await client.request("tools/call", LARGE)
            assert counted["structuredContent"] == {"count": 3}
