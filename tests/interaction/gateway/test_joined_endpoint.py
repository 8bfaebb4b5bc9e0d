"""/mcp joins all upstreams; each tool has a name that resolves to it."""

import re
from dataclasses import replace
from pathlib import Path

import httpx
import mcp_types as types
import pytest

from ringback.domain.principal import DEFAULT_SCOPES
from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness
from tests.support.api_server import serving_api
from tests.support.application import running_application
from tests.support.library_upstream import LibraryUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, ModernClient
from tests.support.upstreams import ControlledUpstream, make_http_config, serving

LONG = "a.very/long-name." * 8


async def list_names(client: ModernClient, kind: str = "tools") -> list[str]:
    listed = (await client.request(f"{kind}/list", {}, declare=NO_CAPABILITIES))[kind]
    return [entry["name"] for entry in listed]


async def call_tool(client: ModernClient, name: str, **arguments: str) -> Json:
    return await client.request("tools/call", {"name": name, "arguments": arguments}, declare=NO_CAPABILITIES)


async def test_tools_and_prompts_have_their_upstreams_name_as_prefix(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client(None)
    listed = await list_names(client)
    assert {"paint__count", "plain__echo", "library__talk", "tasks__work", "old-paint__count"} <= set(listed)
    assert "ringback_get_call" in listed
    assert await list_names(client, "prompts") == ["library__review"]
    assert (await call_tool(client, "paint__count"))["structuredContent"] == {"count": 3}
    prompt = await client.request("prompts/get", {"name": "library__review", "arguments": {}})
    assert prompt["messages"][0]["content"]["text"].startswith("review")


async def test_legacy_clients_see_the_same_lists(gate: GatewayHarness) -> None:
    async with gate.open_legacy_session(None) as session:
        assert (await session.request("tools/call", {"name": "plain__echo", "arguments": {"a": "b"}}))["content"]
        assert "paint__count" in [tool["name"] for tool in (await session.request("tools/list", {}))["tools"]]


@pytest.mark.parametrize("upstream", [None, "paint"])
async def test_a_slash_at_the_end_of_the_url_changes_nothing(gate: GatewayHarness, upstream: str | None) -> None:
    client = await gate.make_modern_client(upstream)
    listed = await list_names(client)

    assert await list_names(replace(client, url=f"{client.url}/")) == listed


async def test_a_name_without_its_upstream_is_refused_with_the_form_that_names_have_here(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client(None)
    with pytest.raises(JsonRpcErrorResponse) as bare:
        await client.request("tools/call", {"name": "echo", "arguments": {}})
    with pytest.raises(JsonRpcErrorResponse) as joined:
        await client.request("tools/call", {"name": "nowhere__echo", "arguments": {}})

    assert "Here its upstream comes first: upstream__name." in bare.value.message
    assert "comes first" not in joined.value.message


async def test_resources_keep_their_uris_and_are_read_at_their_upstream(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client(None)
    uris = [each["uri"] for each in (await client.request("resources/list", {}))["resources"]]
    assert "book://1" in uris
    assert len(uris) == len(set(uris))
    assert (await client.request("resources/read", {"uri": "book://1"}))["contents"][0]["text"] == "Once …"
    with pytest.raises(JsonRpcErrorResponse) as passed_on:
        await client.request("resources/read", {"uri": "book://99"})  # matches the library's template
    assert passed_on.value.message == "There is no such book."
    with pytest.raises(JsonRpcErrorResponse) as unknown:
        await client.request("resources/read", {"uri": "shelf://1"})
    assert unknown.value.code == -32602


async def test_a_linked_resource_that_no_list_has_is_read_at_the_only_upstream_with_its_scheme(
    gate: GatewayHarness,
) -> None:
    client = await gate.make_modern_client(None)
    with pytest.raises(JsonRpcErrorResponse) as passed_on:
        await client.request("resources/read", {"uri": "book:rare"})  # the library's template begins with book://
    assert passed_on.value.message == "There is no such book."


async def test_completions_are_routed_by_their_prompt_or_template(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client(None)
    for reference in (
        {"type": "ref/prompt", "name": "library__review"},
        {"type": "ref/resource", "uri": "book://{number}"},
    ):
        requested = {"ref": reference, "argument": {"name": "number", "value": ""}}
        assert (await client.request("completion/complete", requested))["completion"]["values"] == ["1", "2"]


@pytest.mark.parametrize("name", ["echo", "nobody__echo", "plain__", "__echo", "plain_echo", "plain__ehco"])
async def test_an_unresolvable_name_is_an_unknown_tool(gate: GatewayHarness, name: str) -> None:
    with pytest.raises(JsonRpcErrorResponse) as refused:
        await call_tool(await gate.make_modern_client(None), name)
    assert refused.value.code == -32602


async def test_names_that_clients_refuse_are_shortened_and_resolve_after_a_restart(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    stage.tools = [
        types.Tool(name=name, input_schema={"type": "object"}) for name in ("get.it", "get_it", "get/it", LONG)
    ]
    async with serving(stage.app()) as server, httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
        config = make_http_config(server.url)
        async with running_application(tmp_path, config, auth="off") as ringback, serving_api(ringback.app.api) as url:
            first = [
                name for name in await list_names(ModernClient(http, f"{url}/mcp")) if not name.startswith("ringback_")
            ]
        assert len(set(first)) == 4
        assert first[1] == "stage__get_it"
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in first)

        async with running_application(tmp_path, config, auth="off") as ringback, serving_api(ringback.app.api) as url:
            for name in first:  # without a list before it
                await call_tool(ModernClient(http, f"{url}/mcp"), name)
    assert [params.name for params in stage.calls] == ["get.it", "get_it", "get/it", LONG]


@pytest.mark.requirement("R25")
async def test_an_upstream_that_a_key_may_not_use_is_hidden(gate: GatewayHarness) -> None:
    keys = gate.ringback.app.services.api_keys
    _, key = await keys.create_key("carol", name="test", scopes=DEFAULT_SCOPES, upstreams=frozenset({"plain"}))
    client = ModernClient(gate.http, f"{gate.url}/mcp", key)
    assert {name.partition("__")[0] for name in await list_names(client)} == {"plain"} | {
        name for name in await list_names(client) if name.startswith("ringback_")
    }
    refusals = [await _call_error(client, name) for name in ("paint__count", "nobody__count")]
    assert refusals[0] == refusals[1]
    answers = [
        (await gate.http.post(f"{gate.url}/mcp/{name}", headers={"authorization": f"Bearer {key}"}, json={})).content
        for name in ("paint", "plait")
    ]
    assert answers[0] == answers[1], "the suggestion depends on the sent name and the visible ones"
    assert b"Did you mean 'plain'?" in answers[0]
    assert (await call_tool(ModernClient(gate.http, f"{gate.url}/mcp/plain", key), "echo"))["content"]


async def _call_error(client: ModernClient, name: str) -> tuple[int, str]:
    with pytest.raises(JsonRpcErrorResponse) as refused:
        await call_tool(client, name)
    return refused.value.code, refused.value.message


async def test_an_unreachable_upstream_is_left_out_of_the_lists(tmp_path: Path) -> None:
    async with serving(LibraryUpstream().app("modern")) as server, httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
        away = replace(make_http_config("http://127.0.0.1:9/mcp", name="away"))
        config = make_http_config(server.url, name="library")
        async with (
            running_application(tmp_path, away, config, auth="off") as ringback,
            serving_api(ringback.app.api) as url,
        ):
            assert (await list_names(ModernClient(http, f"{url}/mcp")))[0] == "library__talk"
