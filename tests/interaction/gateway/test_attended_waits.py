"""What this process keeps for an open request that waits for a call ends with the request, however the wait ends."""

from typing import Any, Final

import pytest

from ringback.mcp_server.tool_export import PENDING_KEY
from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import ModernClient

UPSTREAMS: Final = ("paint",)

WAIT = 0.1
"""Shorter than the tool."""


def count_kept(gate: GatewayHarness) -> int:
    return len(gate.ringback.app.services.calls._attended_calls)  # pyright: ignore[reportPrivateUsage] - a leak is invisible from outside


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_call_that_outlives_the_wait_of_its_request_is_forgotten_with_it(
    gate: GatewayHarness, era: str
) -> None:
    query = f"?wait={WAIT}"
    async with gate.open_legacy_session(query=query) as session:
        client = session if era == "legacy" else await gate.make_modern_client(query=query)
        declare: Any = {"declare": NO_CAPABILITIES} if isinstance(client, ModernClient) else {}
        pending = await client.request("tools/call", {"name": "wait", "arguments": {}}, **declare)

    assert pending["structuredContent"][PENDING_KEY]["status"] == "working"
    assert count_kept(gate) == 0
    gate.interop.release.set()


async def test_a_call_that_outlives_its_wait_seconds_is_forgotten(gate: GatewayHarness) -> None:
    body: dict[str, Any] = {"upstream": "paint", "tool": "wait", "wait_seconds": WAIT}
    headers = {"Authorization": f"Bearer {await gate.get_api_key('alice')}"}

    started = await gate.http.post(f"{gate.url}/v1/calls", json=body, headers=headers, timeout=WAIT_SECONDS)

    assert started.status_code == 202
    assert count_kept(gate) == 0
    gate.interop.release.set()
