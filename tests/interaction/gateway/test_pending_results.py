"""ringback://calls/{id}: a running call as a resource that later contains its result."""

import json
from typing import Any, Final

import pytest

from ringback.mcp_server.tool_export import PENDING_KEY
from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, LegacyClientSession, ModernClient

UPSTREAMS: Final = ("library", "paint", "plain")

UNKNOWN = "ringback://calls/call_00000000000000000000000000"

pytestmark = pytest.mark.requirement("R15")


async def start_held_call(client: ModernClient | LegacyClientSession) -> str:
    """The URI of a running call."""
    declare: Any = {"declare": NO_CAPABILITIES} if isinstance(client, ModernClient) else {}
    pending = await client.request("tools/call", {"name": "hold", "arguments": {}}, **declare)
    uri: str = pending["structuredContent"][PENDING_KEY]["resource_uri"]
    return uri


async def read_resource(client: ModernClient | LegacyClientSession, uri: str) -> Json:
    return await client.request("resources/read", {"uri": uri})


async def test_the_resource_shows_the_status_and_then_the_result(
    gate: GatewayHarness, modern: ModernClient, session: LegacyClientSession
) -> None:
    for client in (modern, session):
        uri = await start_held_call(client)
        before = await read_resource(client, uri)
        (contents,) = before["contents"]
        returned = json.loads(contents["text"])
        assert (contents["uri"], contents["mimeType"]) == (uri, "application/json")
        assert (returned["status"], returned["upstream"], returned["tool"]) == ("working", "paint", "hold")
        assert "result" not in returned

        gate.interop.release.set()
        await gate.wait_until_ended(returned["call_id"])
        after = json.loads((await read_resource(client, uri))["contents"][0]["text"])

        assert (after["status"], after["outcome"]) == ("completed", "result")
        assert after["result"]["content"] == [{"type": "text", "text": "held"}]
        gate.interop.reset()


async def test_the_resource_is_never_cached_or_shared(gate: GatewayHarness, modern: ModernClient) -> None:
    answer = await read_resource(modern, await start_held_call(modern))
    assert (answer["ttlMs"], answer["cacheScope"]) == (0, "private")
    gate.interop.release.set()


async def test_the_resource_can_be_read_at_every_endpoint(gate: GatewayHarness, modern: ModernClient) -> None:
    uri = await start_held_call(modern)
    for upstream in ("plain", None):
        assert (await read_resource(await gate.make_modern_client(upstream), uri))["contents"][0]["uri"] == uri
    gate.interop.release.set()


async def test_the_template_is_listed_after_the_upstreams_templates(gate: GatewayHarness) -> None:
    async with gate.open_legacy_session("library") as session:
        for client in (await gate.make_modern_client("library"), session):
            listed = await client.request("resources/templates/list", {})
            templates = [template["uriTemplate"] for template in listed["resourceTemplates"]]
            assert templates == ["book://{number}", "ringback://calls/{call_id}"]


@pytest.mark.requirement("R25")
async def test_a_foreign_call_is_unknown_like_one_that_does_not_exist(
    gate: GatewayHarness, modern: ModernClient
) -> None:
    uri = await start_held_call(modern)
    bob = await gate.make_modern_client(principal="bob")
    refusals: list[tuple[int, str]] = []
    for requested in (uri, UNKNOWN):
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await read_resource(bob, requested)
        refusals.append((refused.value.code, refused.value.message))
    assert refusals[0] == refusals[1]
    assert refusals[0][0] == -32602
    gate.interop.release.set()


async def test_a_legacy_client_gets_the_legacy_code_of_an_unknown_resource(session: LegacyClientSession) -> None:
    for uri in (UNKNOWN, "ringback://calls/nonsense", "ringback://else"):
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await read_resource(session, uri)
        assert refused.value.code == -32002


async def test_the_resource_of_a_failed_call_contains_its_error(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client("plain")
    with pytest.raises(JsonRpcErrorResponse):
        await client.request(
            "tools/call", {"name": "refuse", "arguments": {}, "_meta": {"ringback/correlationId": "refused-1"}}
        )
    (call,) = (await gate.request_rest("GET", "/v1/calls?correlation_id=refused-1")).json()["calls"]
    returned = json.loads((await read_resource(client, f"ringback://calls/{call['id']}"))["contents"][0]["text"])
    assert (returned["status"], returned["error"]["code"]) == ("failed", -32042)
