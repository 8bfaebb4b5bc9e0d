"""Options in headers and in the URL count for a disconnect of an MCP client, and not for REST."""

from typing import Any

from tests.interaction.gateway.conftest import GatewayHarness
from tests.interaction.gateway.test_client_disconnects import disconnect_during_call, wait_for_end
from tests.support.mcp_wire import Json, ModernClient


async def test_a_client_with_an_option_in_its_url_keeps_its_call_when_it_disconnects(gate: GatewayHarness) -> None:
    key = await gate.get_api_key("alice")
    client = ModernClient(gate.http, f"{gate.url}/mcp/paint?correlation_id=kept", key)
    await disconnect_during_call(gate, client, "kept-by-url")
    gate.interop.release.set()
    assert (await wait_for_end(gate, "kept-by-url"))["outcome"] == "result"


async def test_rest_ignores_the_headers(gate: GatewayHarness) -> None:
    body: Json = {"upstream": "paint", "tool": "count", "wait_seconds": 30.0}
    headers = {
        "authorization": f"Bearer {await gate.get_api_key('alice')}",
        "Ringback-Client-Session-Id": "ignored",
        "Ringback-Callback-Url": "https://10.0.0.1/ignored",
    }
    answer: Any = await gate.http.post(f"{gate.url}/v1/calls", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["call"]["client_session_id"] is None
