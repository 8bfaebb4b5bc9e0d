"""The Python SDK's client gets the same through Ringback as directly, in both eras; slow calls keep their results."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import mcp_types as types
import pytest
from mcp import Client
from mcp.client import ClientRequestContext

from tests.interaction.interop.conftest import GatewayChain
from tests.support.interop_upstream import BLUE_ANSWER, WIDGET
from tests.support.upstreams import WAIT_SECONDS

MODES: Final = ("auto", "legacy", "2026-07-28")


@asynccontextmanager
async def open_client(url: str, mode: Any) -> AsyncGenerator[Client]:
    async def answer(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context, params
        return types.ElicitResult.model_validate(BLUE_ANSWER)

    async with Client(url, mode=mode, elicitation_callback=answer) as client:
        yield client


async def observe(url: str, mode: str) -> dict[str, Any]:
    """The capabilities, lists and results that a client gets in one session."""
    async with open_client(url, mode) as client:
        listed = await client.list_tools()
        tools = [comparable_json(tool) for tool in listed.tools if not tool.name.startswith("ringback_")]
        for tool in tools:
            tool.pop("outputSchema", None)  # the exported one also allows a pending result
            tool.pop("execution", None)  # the exported one allows tasks for every tool
        resource = await client.read_resource(WIDGET)
        return {
            "version": client.protocol_version,
            "tools": tools,
            "resource": comparable_json(resource)["contents"],
            **{name: await _outcome(client, name) for name in ("count", "lie", "widget", "ask", "fail", "missing")},
        }


async def _outcome(client: Client, name: str) -> Any:
    try:
        result = comparable_json(await client.call_tool(name, {}))
    except Exception as error:  # noqa: BLE001 - whatever the client raises is what its user sees
        return type(error).__name__
    meta = {key: value for key, value in result.pop("_meta", {}).items() if key.startswith("openai/")}
    return {**result, "_meta": meta}


def get_pending(result: types.CallToolResult) -> dict[str, Any]:
    """The `ringback_pending` of a pending result."""
    assert result.structured_content is not None
    pending: dict[str, Any] = result.structured_content["ringback_pending"]
    return pending


def comparable_json(model: Any) -> dict[str, Any]:
    returned: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return returned


@pytest.mark.requirement("R28")
@pytest.mark.parametrize("mode", MODES)
async def test_a_session_gets_the_same_as_without_ringback(street: GatewayChain, mode: str) -> None:
    direct = await observe(street.direct_url, mode)

    assert await observe(street.gateway_url, mode) == direct
    assert direct["count"]["structuredContent"] == {"count": 3}
    assert direct["lie"] == "RuntimeError"
    assert direct["ask"]["content"][0]["text"] == "painted blue"


@pytest.mark.sqlite_only  # the two services would have one key, and be taken for one
@pytest.mark.parametrize("mode", MODES)
async def test_a_chain_of_two_ringbacks_changes_nothing(street: GatewayChain, mode: str) -> None:
    assert await observe(street.second_gateway_url, mode) == await observe(street.direct_url, mode)


@pytest.mark.sqlite_only  # the two services would have one key, and be taken for one
async def test_a_chain_of_two_ringbacks_shows_the_builtin_tools_of_the_nearer_one(street: GatewayChain) -> None:
    async with open_client(street.second_gateway_url, "auto") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        pending = await client.call_tool("hold", {})
        street.upstream.release.set()
        ended = await client.call_tool("ringback_wait_for_call", {"call_id": get_pending(pending)["call_id"]})

    assert len(names) == len(set(names))
    assert ended.structured_content is not None
    assert ended.structured_content["status"] == "completed"


@pytest.mark.requirement("R10")
@pytest.mark.requirement("R14")
@pytest.mark.requirement("R15")
@pytest.mark.parametrize("mode", MODES)
async def test_a_call_longer_than_the_inline_wait_gets_a_pending_result_and_then_its_result(
    street: GatewayChain, mode: str
) -> None:
    async with open_client(street.gateway_url, mode) as client:
        pending = await client.call_tool("hold", {})
        street.upstream.release.set()
        ended = await client.call_tool("ringback_wait_for_call", {"call_id": get_pending(pending)["call_id"]})
        (read,) = (await client.read_resource(get_pending(pending)["resource_uri"])).contents

    assert not pending.is_error
    assert [type(block) for block in pending.content] == [types.TextContent]
    assert ended.content[0] == types.TextContent(type="text", text="held")
    assert ended.structured_content is not None
    assert ended.structured_content["result"]["content"][0]["text"] == "held"
    assert isinstance(read, types.TextResourceContents)
    assert '"completed"' in read.text
    assert "held" in read.text


@asynccontextmanager
async def given_up_call(street: GatewayChain, mode: str) -> AsyncGenerator[Client]:
    """A client that gave up a call of `wait` while the tool ran."""
    async with open_client(street.gateway_url, mode) as client:
        waiting = asyncio.create_task(client.call_tool("wait", {}))
        await street.upstream.wait_until_held()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        yield client


async def test_esc_while_a_legacy_client_waits_ends_the_call_upstream(street: GatewayChain) -> None:
    async with given_up_call(street, "legacy"):
        await asyncio.wait_for(street.upstream.let_go.wait(), WAIT_SECONDS)


@pytest.mark.requirement("R13")
@pytest.mark.parametrize("mode", ["auto", "2026-07-28"])
async def test_a_modern_client_that_gives_up_closes_its_stream_and_finds_the_call_again(
    street: GatewayChain, mode: str
) -> None:
    """Over HTTP its SDK does the same for Esc and for a time-out: it closes the stream."""
    async with given_up_call(street, mode) as client:
        street.upstream.release.set()
        listed = await client.call_tool("ringback_list_calls", {})
        assert listed.structured_content is not None
        call_id = listed.structured_content["calls"][0]["call_id"]
        ended = await client.call_tool("ringback_wait_for_call", {"call_id": call_id})

    assert ended.structured_content is not None
    assert ended.structured_content["result"]["content"][0]["text"] == "held"


@pytest.mark.requirement("R19")
@pytest.mark.parametrize("mode", MODES)
async def test_the_clients_labels_are_returned_with_the_result_and_not_sent_upstream(
    street: GatewayChain, mode: str
) -> None:
    meta: Any = {"ringback/clientSessionId": "session-1", "ringback/correlationId": "report-1", "mine": 1}
    async with open_client(street.gateway_url, mode) as client:
        result = await client.call_tool("count", {}, meta=meta)

    assert result.meta is not None
    assert result.meta["ringback/clientSessionId"] == "session-1"
    assert result.meta["ringback/correlationId"] == "report-1"
    (reached,) = street.upstream.seen_meta
    assert reached.get("mine") == 1
    assert not [key for key in reached if key.startswith("ringback/")]


@pytest.mark.requirement("R07")
async def test_both_eras_advertise_that_calls_can_be_resumed(street: GatewayChain) -> None:
    async with open_client(
        street.gateway_url, "auto"
    ) as client:  # a client with a fixed version sends no further request
        extensions = client.server_capabilities.extensions or {}
    async with open_client(street.gateway_url, "legacy") as client:
        experimental = client.server_capabilities.experimental or {}

    for returned in (extensions["ringback/resume"], experimental["ringback/resume"]):
        assert returned["resumable"] is True
        assert returned["ttlMs"] > 0
        assert returned["resumeUrl"].endswith("/v1/resume")
