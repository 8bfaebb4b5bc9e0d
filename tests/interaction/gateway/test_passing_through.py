"""Everything that is not a tool call: passed on as it is, in both eras, whatever the upstream's own."""

from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.interaction.gateway.conftest import NO_CAPABILITIES, Gate
from tests.support.application import running_application
from tests.support.library import INSTRUCTIONS, Library
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, Modern, Refused, Session
from tests.support.serving import serving as serving_api
from tests.support.upstreams import http_config, serving

LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"


async def both(gate: Gate, upstream: str | None, method: str, params: Json) -> Json:
    """The result, which is the same for clients of both eras but for what 2026-07-28 has on every result."""
    modern = await (await gate.modern(upstream)).result(method, params, declare=NO_CAPABILITIES)
    async with gate.session(upstream) as session:
        legacy = await session.result(method, params)
    assert modern.pop("resultType") == "complete"
    assert modern.pop("_meta")["io.modelcontextprotocol/serverInfo"]["name"] == "ringback"
    assert modern.pop("cacheScope", "private") == "private"
    modern.pop("ttlMs", None)
    assert {key: value for key, value in legacy.items() if key != "_meta"} == modern
    return modern


def theirs(tools: list[Json]) -> list[Json]:
    return [tool for tool in tools if not tool["name"].startswith("ringback_")]


async def test_tools_come_out_as_they_are_listed_but_for_what_a_pending_result_needs(gate: Gate) -> None:
    modern = await gate.modern()
    tools = {tool["name"]: tool for tool in (await modern.result("tools/list", {}))["tools"]}
    count = tools["count"]
    assert count["title"] == "Count"
    assert count["annotations"] == {"readOnlyHint": True}
    assert count["icons"] == [{"src": "https://stage.example/count.png"}]
    assert count["inputSchema"] == {"type": "object"}
    assert tools["widget"]["_meta"] == {"openai/outputTemplate": "ui://widget/board.html"}
    assert "outputSchema" not in tools["widget"]


async def test_our_own_tools_stand_behind_the_upstreams(gate: Gate) -> None:
    async with gate.session("library") as session:
        names = [tool["name"] for tool in (await session.result("tools/list", {}))["tools"]]
    assert names[0] == "talk"
    assert {name.partition("_")[0] for name in names[1:]} == {"ringback"}


async def test_all_pages_of_a_list_come_as_one_in_the_upstreams_order(gate: Gate) -> None:
    listed = await both(gate, "library", "resources/list", {})
    assert [resource["uri"] for resource in listed["resources"]] == gate.library.books
    with pytest.raises(Refused) as refused:
        await (await gate.modern("library")).result("resources/list", {"cursor": "2"})
    assert refused.value.code == -32602


async def test_resources_prompts_and_completions_are_passed_on(gate: Gate) -> None:
    read = await both(gate, "library", "resources/read", {"uri": "book://2"})
    assert read["contents"][0]["uri"] == "book://2"
    prompts = await both(gate, "library", "prompts/list", {})
    assert [prompt["name"] for prompt in prompts["prompts"]] == ["review"]
    prompt = await both(gate, "library", "prompts/get", {"name": "review", "arguments": {}})
    assert prompt["messages"]
    completed = await both(
        gate,
        "library",
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "style", "value": "b"}},
    )
    assert completed["completion"]["values"]


async def test_an_upstreams_refusal_is_passed_on_as_it_is(gate: Gate) -> None:
    with pytest.raises(Refused) as refused:
        await (await gate.modern("library")).result("resources/read", {"uri": "book://99"})
    assert refused.value.code == -32602


@pytest.mark.parametrize("level", ["info", "error"])
async def test_messages_are_relayed_to_a_client_that_asked_for_them(gate: Gate, level: str) -> None:
    arguments = {"levels": ["debug", "info", "error"]}
    heard: list[Json] = []
    params: Json = {"name": "talk", "arguments": arguments}
    modern = await gate.modern("library")
    await modern.result("tools/call", {**params, "_meta": {LOG_LEVEL: level}}, declare=NO_CAPABILITIES, heard=heard)
    async with gate.session("library") as session:
        await session.result("logging/setLevel", {"level": level})
        await session.result("tools/call", params, heard=heard)
    told = [message["params"]["level"] for message in heard if message["method"] == "notifications/message"]
    assert told == {"info": ["info", "error"], "error": ["error"]}[level] * 2


async def test_messages_are_not_sent_to_a_client_that_asked_for_none(gate: Gate) -> None:
    params: Json = {"name": "talk", "arguments": {"levels": ["error"]}}
    heard: list[Json] = []
    await (await gate.modern("library")).result("tools/call", params, declare=NO_CAPABILITIES, heard=heard)
    async with gate.session("library") as session:
        await session.result("tools/call", params, heard=heard)
    assert heard == []


async def _steps(client: Modern | Session, params: Json) -> list[Json]:
    heard: list[Json] = []
    declare: Any = {"declare": NO_CAPABILITIES} if isinstance(client, Modern) else {}
    await client.result("tools/call", params, heard=heard, **declare)
    return [message["params"] for message in heard if message["method"] == "notifications/progress"]


async def test_progress_is_relayed_under_the_clients_own_token(gate: Gate) -> None:
    params: Json = {"name": "steps", "arguments": {}, "_meta": {"progressToken": "mine"}}
    async with gate.session("plain") as session:
        for client in (await gate.modern("plain"), session):
            assert await _steps(client, params) == [
                {"progressToken": "mine", "progress": 1.0, "total": 2.0, "message": "half"},
                {"progressToken": "mine", "progress": 2.0, "total": 2.0},
            ]
            assert await _steps(client, {"name": "steps", "arguments": {}}) == []


async def test_a_greeting_tells_what_the_upstream_can_and_what_we_add(gate: Gate) -> None:
    discovered = await (await gate.modern("library")).result("server/discover", {})
    async with gate.session("library") as session:
        greeted = session.greeting
    for told in (discovered, greeted):
        capabilities = told["capabilities"]
        assert {"tools", "resources", "prompts", "completions", "logging"} <= set(capabilities)
        assert capabilities["resources"] == {"listChanged": True, "subscribe": True}
        assert told["instructions"].startswith(INSTRUCTIONS)
        assert "ringback://calls/{call_id}" in told["instructions"]
    assert discovered["cacheScope"] == "private"


async def test_what_an_upstream_has_not_is_not_told_of(gate: Gate) -> None:
    capabilities = (await (await gate.modern("plain")).result("server/discover", {}))["capabilities"]
    assert not {"prompts", "completions", "logging"} & set(capabilities)
    assert {"tools", "resources"} <= set(capabilities)


@pytest.mark.requirement("R07")
async def test_both_eras_are_told_that_calls_can_be_resumed_and_for_how_long(gate: Gate) -> None:
    discovered = await (await gate.modern()).result("server/discover", {})
    async with gate.session() as session:
        greeted = session.greeting
    for told in (discovered, greeted):
        for place in ("extensions", "experimental"):
            assert told["capabilities"][place]["ringback/resume"] == {
                "resumable": True,
                "ttlMs": 7 * 86_400_000,
                "resumeUrl": "https://ringback.example/v1/resume",
            }


async def test_lists_are_answered_while_the_upstream_is_down_also_after_a_restart(tmp_path: Path) -> None:
    async with serving(Library().app("modern")) as server:
        config = http_config(server.url, name="library")
        async with running_application(tmp_path, config, auth="off") as ringback, serving_api(ringback.app.api) as url:
            before = await _lists(f"{url}/mcp/library")
    async with running_application(tmp_path, config, auth="off") as ringback, serving_api(ringback.app.api) as url:
        assert await _lists(f"{url}/mcp/library") == before


async def test_a_ringback_behind_us_keeps_its_own_tools_and_resources_to_itself(gate: Gate, tmp_path: Path) -> None:
    behind = http_config(
        f"{gate.url}/mcp/paint", name="far", headers={"authorization": f"Bearer {await gate.key('alice')}"}
    )
    async with (
        running_application(tmp_path, behind, auth="off") as ringback,
        serving_api(ringback.app.api) as url,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
    ):
        client = Modern(http, f"{url}/mcp/far")
        names = [tool["name"] for tool in (await client.result("tools/list", {}))["tools"]]
        templates = (await client.result("resources/templates/list", {}))["resourceTemplates"]
        assert (await client.result("tools/call", {"name": "count", "arguments": {}}))["structuredContent"] == {
            "count": 3
        }
    assert len(names) == len(set(names))
    assert [template["uriTemplate"] for template in templates] == ["ringback://calls/{call_id}"]


async def _lists(url: str) -> Json:
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
        client = Modern(http, url)
        discovered = await client.result("server/discover", {})
        return {
            "instructions": discovered["instructions"],
            "capabilities": discovered["capabilities"],
            **{kind: (await client.result(f"{kind}/list", {}))[kind] for kind in ("tools", "resources", "prompts")},
        }
