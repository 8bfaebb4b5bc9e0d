"""All methods except tool calls are proxied unchanged in both eras, whatever the upstream's era."""

from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.interaction.gateway.conftest import LONG_INLINE_WAIT_SECONDS, NO_CAPABILITIES, GatewayHarness
from tests.support.api_server import serving_api
from tests.support.application import running_application
from tests.support.library_upstream import INSTRUCTIONS, LibraryUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, LegacyClientSession, ModernClient
from tests.support.upstreams import make_http_config, serving

UPSTREAMS: Final = ("library", "paint", "plain")

LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"


async def request_in_both_eras(gate: GatewayHarness, upstream: str | None, method: str, params: Json) -> Json:
    """The result without the fields of every modern result, by which the eras differ."""
    modern = await (await gate.make_modern_client(upstream)).request(method, params, declare=NO_CAPABILITIES)
    async with gate.open_legacy_session(upstream) as session:
        legacy = await session.request(method, params)
    assert modern.pop("resultType") == "complete"
    assert modern.pop("_meta")["io.modelcontextprotocol/serverInfo"]["name"] == "ringback"
    assert modern.pop("cacheScope", "private") == "private"
    modern.pop("ttlMs", None)
    assert {key: value for key, value in legacy.items() if key != "_meta"} == modern
    return modern


async def test_tools_are_exported_unchanged_except_for_the_pending_result(gate: GatewayHarness) -> None:
    modern = await gate.make_modern_client()
    tools = {tool["name"]: tool for tool in (await modern.request("tools/list", {}))["tools"]}
    count = tools["count"]
    assert count["title"] == "Count"
    assert count["annotations"] == {"readOnlyHint": True}
    assert count["icons"] == [{"src": "https://stage.example/count.png"}]
    assert count["inputSchema"] == {"type": "object"}
    assert tools["widget"]["_meta"] == {"openai/outputTemplate": "ui://widget/board.html"}
    assert "outputSchema" not in tools["widget"]


async def test_builtin_tools_are_listed_after_the_upstreams_tools(gate: GatewayHarness) -> None:
    async with gate.open_legacy_session("library") as session:
        names = [tool["name"] for tool in (await session.request("tools/list", {}))["tools"]]
    assert names[0] == "talk"
    assert {name.partition("_")[0] for name in names[1:]} == {"ringback"}


async def test_all_pages_of_a_list_become_one_in_the_upstreams_order(gate: GatewayHarness) -> None:
    listed = await request_in_both_eras(gate, "library", "resources/list", {})
    assert [resource["uri"] for resource in listed["resources"]] == gate.library.books
    with pytest.raises(JsonRpcErrorResponse) as refused:
        await (await gate.make_modern_client("library")).request("resources/list", {"cursor": "2"})
    assert refused.value.code == -32602


async def test_resources_prompts_and_completions_are_proxied(gate: GatewayHarness) -> None:
    read = await request_in_both_eras(gate, "library", "resources/read", {"uri": "book://2"})
    assert read["contents"][0]["uri"] == "book://2"
    prompts = await request_in_both_eras(gate, "library", "prompts/list", {})
    assert [prompt["name"] for prompt in prompts["prompts"]] == ["review"]
    prompt = await request_in_both_eras(gate, "library", "prompts/get", {"name": "review", "arguments": {}})
    assert prompt["messages"]
    completed = await request_in_both_eras(
        gate,
        "library",
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "style", "value": "b"}},
    )
    assert completed["completion"]["values"]


@pytest.mark.parametrize("upstream", ["library", None])
async def test_the_template_of_calls_has_no_completions_and_is_no_error(
    gate: GatewayHarness, upstream: str | None
) -> None:
    """A client asks for the completions of each listed template, once an upstream offers some."""
    listed = await request_in_both_eras(gate, upstream, "resources/templates/list", {})
    reference = {"type": "ref/resource", "uri": listed["resourceTemplates"][-1]["uriTemplate"]}
    requested = {"ref": reference, "argument": {"name": "call_id", "value": "call"}}

    completed = await request_in_both_eras(gate, upstream, "completion/complete", requested)

    assert reference["uri"] == "ringback://calls/{call_id}"
    assert completed == {"completion": {"values": []}}


async def test_an_upstreams_error_is_passed_on_unchanged(gate: GatewayHarness) -> None:
    with pytest.raises(JsonRpcErrorResponse) as refused:
        await (await gate.make_modern_client("library")).request("resources/read", {"uri": "book://99"})
    assert refused.value.code == -32602


@pytest.mark.parametrize("level", ["info", "error"])
async def test_log_messages_are_relayed_to_a_client_that_requested_them(gate: GatewayHarness, level: str) -> None:
    arguments = {"levels": ["debug", "info", "error"]}
    received: list[Json] = []
    params: Json = {"name": "talk", "arguments": arguments}
    modern = await gate.make_modern_client("library")
    await modern.request(
        "tools/call", {**params, "_meta": {LOG_LEVEL: level}}, declare=NO_CAPABILITIES, received=received
    )
    async with gate.open_legacy_session("library") as session:
        await session.request("logging/setLevel", {"level": level})
        await session.request("tools/call", params, received=received)
    returned = [message["params"]["level"] for message in received if message["method"] == "notifications/message"]
    assert returned == {"info": ["info", "error"], "error": ["error"]}[level] * 2


async def test_log_messages_are_not_sent_to_a_client_that_did_not_request_them(gate: GatewayHarness) -> None:
    params: Json = {"name": "talk", "arguments": {"levels": ["error"]}}
    received: list[Json] = []
    await (await gate.make_modern_client("library")).request(
        "tools/call", params, declare=NO_CAPABILITIES, received=received
    )
    async with gate.open_legacy_session("library") as session:
        await session.request("tools/call", params, received=received)
    assert received == []


async def call_steps(client: ModernClient | LegacyClientSession, params: Json) -> list[Json]:
    received: list[Json] = []
    declare: Any = {"declare": NO_CAPABILITIES} if isinstance(client, ModernClient) else {}
    await client.request("tools/call", params, received=received, **declare)
    return [message["params"] for message in received if message["method"] == "notifications/progress"]


async def test_progress_is_relayed_under_the_clients_own_token(gate: GatewayHarness) -> None:
    params: Json = {"name": "steps", "arguments": {}, "_meta": {"progressToken": "mine"}}
    async with gate.open_legacy_session("plain") as session:
        for client in (await gate.make_modern_client("plain"), session):
            assert await call_steps(client, params) == [
                {"progressToken": "mine", "progress": 1.0, "total": 2.0, "message": "half"},
                {"progressToken": "mine", "progress": 2.0, "total": 2.0},
            ]
            assert await call_steps(client, {"name": "steps", "arguments": {}}) == []


async def test_initialize_returns_the_upstreams_capabilities_and_ours(gate: GatewayHarness) -> None:
    discovered = await (await gate.make_modern_client("library")).request("server/discover", {})
    async with gate.open_legacy_session("library") as session:
        greeted = session.initialize_result
    for returned in (discovered, greeted):
        capabilities = returned["capabilities"]
        assert {"tools", "resources", "prompts", "completions", "logging"} <= set(capabilities)
        assert capabilities["resources"] == {"listChanged": True, "subscribe": True}
        assert returned["instructions"].startswith(INSTRUCTIONS)
        assert "ringback://calls/{call_id}" in returned["instructions"]
    assert discovered["cacheScope"] == "private"


async def test_capabilities_that_an_upstream_lacks_are_not_advertised(gate: GatewayHarness) -> None:
    capabilities = (await (await gate.make_modern_client("plain")).request("server/discover", {}))["capabilities"]
    assert not {"prompts", "completions", "logging"} & set(capabilities)
    assert {"tools", "resources"} <= set(capabilities)


@pytest.mark.requirement("R07")
async def test_both_eras_advertise_that_calls_can_be_resumed_and_for_how_long(gate: GatewayHarness) -> None:
    discovered = await (await gate.make_modern_client()).request("server/discover", {})
    async with gate.open_legacy_session() as session:
        greeted = session.initialize_result
    for returned in (discovered, greeted):
        for place in ("extensions", "experimental"):
            assert returned["capabilities"][place]["ringback/resume"] == {
                "resumable": True,
                "ttlMs": 7 * 86_400_000,
                "resumeUrl": "https://ringback.example/v1/resume",
            }


async def test_lists_are_served_while_the_upstream_is_down_and_after_a_restart(tmp_path: Path) -> None:
    async with serving(LibraryUpstream().app("modern")) as server:
        config = make_http_config(server.url, name="library")
        async with running_application(tmp_path, config, auth="off") as ringback, serving_api(ringback.app.api) as url:
            before = await read_lists(f"{url}/mcp/library")
    async with running_application(tmp_path, config, auth="off") as ringback, serving_api(ringback.app.api) as url:
        assert await read_lists(f"{url}/mcp/library") == before


@pytest.mark.sqlite_only  # the two services would have one key, and be taken for one
async def test_the_builtin_tools_and_resources_of_a_ringback_upstream_are_hidden(
    gate: GatewayHarness, tmp_path: Path
) -> None:
    behind = make_http_config(
        f"{gate.url}/mcp/paint", name="far", headers={"authorization": f"Bearer {await gate.get_api_key('alice')}"}
    )
    async with (
        running_application(tmp_path, behind, auth="off", inline_wait_seconds=LONG_INLINE_WAIT_SECONDS) as ringback,
        serving_api(ringback.app.api) as url,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
    ):
        client = ModernClient(http, f"{url}/mcp/far")
        names = [tool["name"] for tool in (await client.request("tools/list", {}))["tools"]]
        templates = (await client.request("resources/templates/list", {}))["resourceTemplates"]
        counted = await client.request("tools/call", {"name": "count", "arguments": {}}, declare=NO_CAPABILITIES)
        assert counted["structuredContent"] == {"count": 3}
    assert len(names) == len(set(names))
    assert [template["uriTemplate"] for template in templates] == ["ringback://calls/{call_id}"]


async def read_lists(url: str) -> Json:
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
        client = ModernClient(http, url)
        discovered = await client.request("server/discover", {})
        return {
            "instructions": discovered["instructions"],
            "capabilities": discovered["capabilities"],
            **{kind: (await client.request(f"{kind}/list", {}))[kind] for kind in ("tools", "resources", "prompts")},
        }


@pytest.mark.parametrize("state", [5, ["x"], {"a": 1}, True])
async def test_a_request_state_of_a_completion_that_is_no_string_is_unknown(
    gate: GatewayHarness, state: object
) -> None:
    """The SDK checks the type for the methods that know a requestState, and completion/complete does not."""
    params = {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "style", "value": "b"}}
    client = await gate.make_modern_client("library")
    with pytest.raises(JsonRpcErrorResponse) as refused:
        await client.request("completion/complete", {**params, "requestState": state})
    assert refused.value.code == -32602
    async with gate.open_legacy_session("library") as session:
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await session.request("completion/complete", {**params, "requestState": state})
    assert refused.value.code == -32602


async def test_a_subscription_to_a_resource_that_reports_no_changes_is_refused_in_words(
    session: LegacyClientSession,
) -> None:
    """The capability is declared all the same: calls can be subscribed to."""
    with pytest.raises(JsonRpcErrorResponse) as refused:
        await session.request("resources/subscribe", {"uri": "x://y"})
    assert refused.value.code == -32601
    assert "reports no changes" in refused.value.message
