"""FastMCP on both sides: its client, its server with tasks, and each with the SDK's counterpart."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, Final

import pytest
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.exceptions import ToolError
from fastmcp_tasks import ToolTask
from fastmcp_tasks import call_tool_task as _call_tool_task  # pyright: ignore[reportUnknownVariableType] - it is generic

from ringback.upstreams.config import ProtocolChoice
from tests.interaction.interop.conftest import GRACE_SECONDS, GatewayChain
from tests.support.application import running_application
from tests.support.fastmcp_upstream import serving_fastmcp
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import make_http_config, serving

LONG_SECONDS: Final = 3600.0


@pytest.fixture(scope="module")
async def reports(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    """`/mcp/reports` of a Ringback whose upstream is FastMCP's server with tasks."""
    folder = module_path_factory.mktemp("reports")
    async with serving_fastmcp(folder / "ledger") as url:
        config = make_http_config(url, name="reports")
        async with (
            running_application(
                folder,
                config,
                replace(config, name="legacy-reports", protocol=ProtocolChoice.LEGACY),
                auth="off",
                task_grace_seconds=GRACE_SECONDS,
                connect_patience_seconds=WAIT_SECONDS,
            ) as ringback,
            serving(ringback.app.api) as server,
        ):
            yield f"{server.url}/reports"


async def answer_blue(message: str, response_type: Any, params: Any, context: Any) -> ElicitResult[Any]:
    del message, response_type, params, context
    return ElicitResult(action="accept", content={"colour": "blue"})


def open_client(url: str) -> Client[Any]:
    return Client(url, elicitation_handler=answer_blue)


async def call_tool_task(client: Client[Any], name: str, arguments: dict[str, Any] | None = None) -> ToolTask:
    return await _call_tool_task(client, name, arguments)


def text(result: Any) -> str:
    return str(result.content[0].text)


@pytest.mark.requirement("R28")
async def test_a_fastmcp_client_calls_tools_of_an_sdk_server(street: GatewayChain) -> None:
    async with open_client(street.gateway_url) as client:
        counted = await client.call_tool("count")
        painted = await client.call_tool("ask")
        board = await client.call_tool("widget")
        with pytest.raises(ToolError, match="No paint left"):
            await client.call_tool("fail")

    assert counted.structured_content == {"count": 3}
    assert text(painted) == "painted blue"
    assert board.meta is not None
    assert board.meta["openai/widgetState"] == {"turn": 1}


@pytest.mark.requirement("R30")
async def test_a_fastmcp_client_gets_a_task_for_a_slow_tool(street: GatewayChain) -> None:
    async with open_client(street.gateway_url) as client:
        task = await call_tool_task(client, "wait")
        before = await task.status()
        street.upstream.release.set()
        result = await task

    assert before.status == "working"
    assert text(result) == "held"


@pytest.mark.requirement("R30")
async def test_a_fastmcp_client_cancels_a_task_and_its_tool_stops(street: GatewayChain) -> None:
    async with open_client(street.gateway_url) as client:
        task = await call_tool_task(client, "wait")
        await street.upstream.wait_until_held()
        await task.cancel()
        ended = await task.wait(timeout=WAIT_SECONDS)

    assert ended.status == "cancelled"
    await asyncio.wait_for(street.upstream.let_go.wait(), WAIT_SECONDS)


@pytest.mark.requirement("R30")
async def test_tasks_of_a_fastmcp_server_are_tasks_through_the_gateway(reports: str) -> None:
    async with open_client(reports) as client:
        added = await client.call_tool("add", {"first": 20, "second": 22})
        built = await call_tool_task(client, "build_report", {"seconds": 0.1})
        endless = await call_tool_task(client, "build_report", {"seconds": LONG_SECONDS})
        working = await endless.status()
        await endless.cancel()
        cancelled = await endless.wait(timeout=WAIT_SECONDS)

        assert added.data == 42
        assert text(await built) == "built"
    assert (working.status, cancelled.status) == ("working", "cancelled")


@pytest.mark.requirement("R30")
@pytest.mark.requirement("R32")
async def test_a_question_of_a_fastmcp_server_reaches_a_fastmcp_client(reports: str) -> None:
    async with open_client(reports) as client:
        painted = await client.call_tool("paint")
        task = await call_tool_task(client, "paint")
        requested = await task.wait(state="input_required", timeout=WAIT_SECONDS)
        again = await task

    assert requested.status == "input_required"
    assert (text(painted), text(again)) == ("painted blue", "painted blue")


@pytest.mark.requirement("R32")
async def test_a_question_that_fastmcp_asks_legacy_clients_only_is_asked_if_the_upstream_is_configured_as_legacy(
    reports: str,
) -> None:
    async with open_client(reports) as client:
        with pytest.raises(ToolError, match="2026-07-28"):
            await client.call_tool("choose")
    async with open_client(reports.replace("/reports", "/legacy-reports")) as client:
        chosen = await client.call_tool("choose")

    assert text(chosen) == "chose blue"
