"""Which scope of an API key each built-in tool needs: that of its action, as over REST."""

from collections.abc import Collection
from typing import Any, Final

import pytest

from ringback.domain.principal import Scope
from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, ModernClient

UPSTREAMS: Final = ("paint",)

pytestmark = pytest.mark.requirement("R25")


async def make_client(gate: GatewayHarness, scopes: Collection[Scope], upstream: str = "paint") -> ModernClient:
    keys = gate.ringback.app.services.api_keys
    _, key = await keys.create_key("alice", name="narrow", scopes=frozenset(scopes), upstreams=None)
    return ModernClient(gate.http, f"{gate.url}/mcp/{upstream}", key)


async def call_tool(client: ModernClient, name: str, **arguments: Any) -> Json:
    return await client.request("tools/call", {"name": name, "arguments": arguments}, declare=NO_CAPABILITIES)


async def start_call(client: ModernClient) -> str:
    pending = await call_tool(client, "hold")
    call_id: str = pending["structuredContent"]["ringback_pending"]["call_id"]
    return call_id


async def test_a_key_that_may_start_calls_may_cancel_and_answer_them_with_tools(gate: GatewayHarness) -> None:
    """It had 403, although the scope `calls` means to start, answer, cancel and erase calls."""
    client = await make_client(gate, {Scope.CALLS})
    call_id = await start_call(client)

    answered = await call_tool(
        client, "ringback_answer_call", call_id=call_id, responses={"r1.1": {"action": "cancel"}}
    )
    cancelled = await call_tool(client, "ringback_cancel_call", call_id=call_id)

    assert (answered["isError"], answered["structuredContent"]["ignored"]) == (False, ["r1.1"])
    assert (cancelled["isError"], cancelled["structuredContent"]["cancel_requested"]) == (False, True)
    assert (await gate.wait_until_ended(call_id))["status"] == "cancelled"


async def test_a_key_that_may_not_read_gets_no_result_by_cancelling(gate: GatewayHarness) -> None:
    client = await make_client(gate, {Scope.CALLS})
    call_id = (await call_tool(client, "count"))["_meta"]["ringback/callId"]

    too_late = await call_tool(client, "ringback_cancel_call", call_id=call_id)

    assert not too_late["isError"]
    assert "had ended as completed. Only a key with the scope 'read'" in too_late["content"][0]["text"]
    assert (len(too_late["content"]), "result" in too_late["structuredContent"]) == (1, False)


@pytest.mark.parametrize(
    ("scope", "tool", "lacks"),
    [
        (Scope.CALLS, "ringback_get_call", "read"),
        (Scope.CALLS, "ringback_notify_me", "webhooks"),
        (Scope.WEBHOOKS, "ringback_cancel_call", "calls"),
    ],
)
async def test_the_error_names_the_scope_that_the_tool_needs(
    gate: GatewayHarness, scope: Scope, tool: str, lacks: str
) -> None:
    client = await make_client(gate, {scope})
    with pytest.raises(JsonRpcErrorResponse, match=f"lacks the scope '{lacks}'") as refused:
        await call_tool(client, tool, call_id="call_01JZZZZZZZZZZZZZZZZZZZZZZZ")
    assert refused.value.status == 403
