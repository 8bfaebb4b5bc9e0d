"""A pending result that every client survives: one text block, a link only where it is read, an error where it is wanted."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx
import mcp_types as types
import pytest
from mcp import Client

from ringback.domain.upstreams import PendingForm
from ringback.mcp_server.tool_export import PENDING_KEY
from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness
from tests.support.application import running_application
from tests.support.interop_upstream import InteropUpstream
from tests.support.mcp_wire import Json, ModernClient, legacy_session
from tests.support.upstreams import WAIT_SECONDS, make_http_config, serving

UPSTREAMS: Final = ("paint", "plain", "slow-paint")

pytestmark = pytest.mark.requirement("R14")

CODE: Final = "Visual Studio Code"


async def start_pending_call(
    gate: GatewayHarness, version: str, name: str, *, upstream: str = "slow-paint", tool: str = "count"
) -> Json:
    """The pending result of a client with this name in a session of this version."""
    params: Json = {"name": tool, "arguments": {}}
    if version == "2026-07-28":
        client = await gate.make_modern_client(upstream, name=name)
        return await client.request("tools/call", params, declare=NO_CAPABILITIES)
    async with gate.open_legacy_session(upstream, version=version, name=name) as session:
        return await session.request("tools/call", params)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("2026-07-28", "mcp"),
        ("2025-11-25", "langchain"),
        ("2025-06-18", "test"),
        ("2025-03-26", CODE),
        ("2024-11-05", CODE),
    ],
)
async def test_a_pending_result_is_one_text_block(gate: GatewayHarness, version: str, name: str) -> None:
    pending = await start_pending_call(gate, version, name)

    (block,) = pending["content"]
    call_id = pending["_meta"]["ringback/callId"]
    assert block["type"] == "text"
    for part in (
        f"call_id {call_id}",
        f'ringback_wait_for_call {{"call_id":"{call_id}"}}',
        f"ringback://calls/{call_id}",
    ):
        assert part in block["text"]


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25", "2025-06-18"])
async def test_a_client_that_reads_links_gets_one_after_the_text(gate: GatewayHarness, version: str) -> None:
    pending = await start_pending_call(gate, version, CODE)

    text, link = pending["content"]
    assert (text["type"], link["type"]) == ("text", "resource_link")
    assert link["uri"] == f"ringback://calls/{pending['_meta']['ringback/callId']}"


# -- pending results as errors ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def urls(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[dict[str, str]]:
    """The same server, whose pending results are errors for all tools, and for all tools but `count`."""
    upstream = InteropUpstream()
    folder: Path = module_path_factory.mktemp("forms")
    async with serving(upstream.app()) as server:
        config = replace(make_http_config(server.url), inline_wait_seconds=0.0, pending=PendingForm.ERROR)
        partly = replace(config, name="partly", tool_pending={"count": PendingForm.RESULT})
        async with (
            running_application(folder, config, partly, auth="off", allowed_hosts=("127.0.0.1",)) as ringback,
            serving(ringback.app.api) as api,
        ):
            yield {"all": f"{api.url}/stage", "partly": f"{api.url}/partly"}


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_an_upstreams_pending_results_are_errors_if_it_is_configured_so(urls: dict[str, str], mode: Any) -> None:
    """The SDK's client validates structuredContent against the exported outputSchema."""
    async with Client(urls["all"], mode=mode) as client:
        await client.list_tools()
        pending = await client.call_tool("count", {})
        assert pending.structured_content is not None
        call_id = pending.structured_content[PENDING_KEY]["call_id"]
        ended = await client.call_tool("ringback_wait_for_call", {"call_id": call_id, "wait_seconds": 60})

    (block,) = pending.content
    assert pending.is_error
    assert isinstance(block, types.TextContent)
    assert f'ringback_wait_for_call {{"call_id":"{call_id}"}}' in block.text
    assert (ended.is_error, ended.content[0]) == (False, types.TextContent(type="text", text="3"))


async def test_a_tools_own_form_overrides_its_upstreams(urls: dict[str, str]) -> None:
    async with (
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
        legacy_session(http, urls["partly"]) as session,
    ):
        for client in (ModernClient(http, urls["partly"]), session):
            declare: Any = {"declare": NO_CAPABILITIES} if isinstance(client, ModernClient) else {}
            for tool, is_error in (("count", False), ("widget", True)):
                pending = await client.request("tools/call", {"name": tool, "arguments": {}}, **declare)
                assert pending["isError"] is is_error


# -- the result, later -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_an_error_of_the_tool_reaches_the_client_as_an_error_after_a_pending_result(
    open_gate: GatewayHarness, mode: Any
) -> None:
    async with Client(f"{open_gate.url}/mcp/slow-paint", mode=mode) as client:
        pending = await client.call_tool("fail", {})
        assert pending.structured_content is not None
        call_id = pending.structured_content[PENDING_KEY]["call_id"]
        ended = await client.call_tool("ringback_wait_for_call", {"call_id": call_id, "wait_seconds": 60})

    assert ended.is_error
    assert ended.content[0] == types.TextContent(type="text", text="No paint left.")
    assert ended.structured_content is not None
    assert ended.structured_content["outcome"] == "tool_error"


# -- errors ----------------------------------------------------------------------------------------------------------------


async def test_errors_of_mcp_name_tools_and_no_rest_paths(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client("plain")
    invalid = await client.request("tools/call", {"name": "strict", "arguments": {}}, declare=NO_CAPABILITIES)
    unknown = {"name": "ringback_get_call", "arguments": {"call_id": "call_00000000000000000000000000"}}
    missing = await client.request("tools/call", unknown, declare=NO_CAPABILITIES)
    async with gate.open_legacy_session("plain") as session:
        refused = [await get_error(each) for each in (client, session)]

    for text in (*refused, invalid["content"][0]["text"], missing["content"][0]["text"]):
        assert "/v1/" not in text


async def get_error(client: Any) -> str:
    with pytest.raises(Exception, match="has no tool 'strcit'") as refused:
        await client.request("tools/call", {"name": "strcit", "arguments": {}})
    return str(refused.value)
