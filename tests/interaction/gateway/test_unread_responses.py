"""What MCP clients get while their principal's connections hold many unread bytes: in both eras, and no second run."""

from typing import Any, Final

import pytest

from ringback.api.context import ApiConfig
from ringback.mcp_server.tool_export import PENDING_KEY
from ringback.services.limits.unread_responses import PRINCIPAL_UNREAD_BYTES_MAX, UnreadResponses
from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, LegacyClientSession, ModernClient
from tests.support.upstreams import wait_until_true

UPSTREAMS: Final = ("plain",)

LARGE: Json = {"text": "x" * 600_000}


@pytest.fixture
def unread(gate: GatewayHarness) -> UnreadResponses:
    config: ApiConfig = gate.ringback.app.api.state.config
    return config.unread_responses


async def call_tool(client: ModernClient | LegacyClientSession, name: str, arguments: Json) -> Json:
    declare: Any = {"declare": NO_CAPABILITIES} if isinstance(client, ModernClient) else {}
    return await client.request("tools/call", {"name": name, "arguments": arguments}, **declare)


async def test_a_large_result_is_left_out_of_the_response_and_read_when_earlier_ones_are_read(
    gate: GatewayHarness, unread: UnreadResponses
) -> None:
    async with gate.open_legacy_session("plain") as session:
        for client in (await gate.make_modern_client("plain"), session):
            unread.reserve_bytes("alice", PRINCIPAL_UNREAD_BYTES_MAX)
            pending = (await call_tool(client, "echo", LARGE))["structuredContent"][PENDING_KEY]
            by_id = {"call_id": pending["call_id"]}
            refused = await call_tool(client, "ringback_get_call", by_id)
            small = await call_tool(client, "echo", {"text": "small"})
            unread.release_bytes("alice", PRINCIPAL_UNREAD_BYTES_MAX)
            read = await call_tool(client, "ringback_get_call", by_id)

            assert pending["status"] == "completed"
            assert (
                f'Get the result with ringback_wait_for_call {{"call_id":"{by_id["call_id"]}"}}' in pending["next_step"]
            )
            assert refused["isError"]
            assert "have not read" in refused["content"][0]["text"]
            assert "small" in small["content"][0]["text"]
            assert any(LARGE["text"] in part["text"] for part in read["content"])
    await wait_until_true(lambda: unread.unread_bytes == 0)


async def test_another_large_response_is_refused_with_a_json_rpc_error_that_says_what_to_do(
    gate: GatewayHarness, unread: UnreadResponses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of MCP show no other body than a JSON-RPC error."""
    monkeypatch.setattr("ringback.services.limits.unread_responses.LARGE_RESPONSE_BYTES", 1)
    async with gate.open_legacy_session("plain", principal="reader") as session:
        for client in (await gate.make_modern_client("plain", principal="reader"), session):
            unread.reserve_bytes("reader", PRINCIPAL_UNREAD_BYTES_MAX)
            with pytest.raises(JsonRpcErrorResponse) as refused:
                await client.request("tools/list", {})
            unread.release_bytes("reader", PRINCIPAL_UNREAD_BYTES_MAX)

            assert refused.value.status == 429
            assert "have not read" in refused.value.message
            assert refused.value.data["quota"] == "unread_response_bytes"
            assert (await client.request("tools/list", {}))["tools"]
