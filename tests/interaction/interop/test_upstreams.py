"""Servers that we did not make, behind `/mcp/{upstream}` and called by the SDK's client: git, and npm's reference server."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import mcp_types as types
import pytest
from mcp import Client
from mcp.client import ClientRequestContext

from ringback.runner.config import Isolation, UpstreamConfig
from tests.support.application import running_application
from tests.support.everything import RESEARCH, over_stdio
from tests.support.upstreams import python_config, serving

REPOSITORY: Final = Path(__file__).parents[3]
LONG_WINDOW_SECONDS: Final = 40.0
"""Longer than anything here takes on a busy machine: what is pending is to be so by its own window."""
RESEARCH_SECONDS: Final = 50.0


@asynccontextmanager
async def connected(folder: Path, config: UpstreamConfig, mode: Any) -> AsyncGenerator[Client]:
    async def answer(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context, params
        return types.ElicitResult(action="accept", content={"interpretation": "technical"})

    async with (
        running_application(
            folder, config, auth="off", inline_wait_seconds=LONG_WINDOW_SECONDS, connect_patience_seconds=60.0
        ) as ringback,
        serving(ringback.app.api) as server,
        Client(f"{server.url}/{config.name}", mode=mode, elicitation_callback=answer) as client,
    ):
        yield client


def text(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


@pytest.mark.requirement("R28")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_git_over_stdio(tmp_path: Path, mode: str) -> None:
    git = python_config("-m", "mcp_server_git", name="git")
    async with connected(tmp_path, git, mode) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        status = await client.call_tool("git_status", {"repo_path": str(REPOSITORY)})
        refused = await client.call_tool("git_status", {"repo": str(REPOSITORY)})

    assert "git_log" in names
    assert "Repository status" in text(status)
    assert refused.is_error
    assert "repo_path" in text(refused)


@pytest.mark.requirement("R28")
@pytest.mark.requirement("R30")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_reference_server_with_a_tool_that_must_be_a_task_and_asks(tmp_path: Path, mode: str) -> None:
    """Called plainly: its own server would refuse that."""
    stage = replace(await over_stdio(isolation=Isolation.CALL), inline_wait_seconds=RESEARCH_SECONDS)
    async with connected(tmp_path, stage, mode) as client:
        echoed = await client.call_tool("echo", {"message": "hello"})
        researched = await client.call_tool(RESEARCH, {"topic": "python", "ambiguous": True})

    assert text(echoed) == "Echo: hello"
    assert "Research Report: python (technical)" in text(researched)


@pytest.mark.requirement("R14")
@pytest.mark.requirement("R15")
async def test_the_reference_servers_task_is_pending_when_it_outlives_the_window(tmp_path: Path) -> None:
    stage = replace(await over_stdio(isolation=Isolation.CALL), tool_inline_wait_seconds={RESEARCH: 0.1})
    async with connected(tmp_path, stage, "legacy") as client:
        pending = await client.call_tool(RESEARCH, {"topic": "python"})
        link = next(block for block in pending.content if isinstance(block, types.ResourceLink))
        call_id = link.uri.rpartition("/")[2]
        ended = await client.call_tool("ringback_wait_for_call", {"call_id": call_id, "wait_seconds": 50})

    assert "Research Report: python" in text(ended)
