"""Third-party servers behind `/mcp/{upstream}` with the SDK's client: git, and npm's reference server."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import mcp_types as types
import pytest
from mcp import Client
from mcp.client import ClientRequestContext

from ringback.upstreams.config import Isolation, UpstreamConfig
from tests.support.application import running_application
from tests.support.everything_server import RESEARCH_TOOL, make_stdio_config
from tests.support.upstreams import make_python_config, serving

REPOSITORY: Final = Path(__file__).parents[3]
WINDOW_SECONDS: Final = 50.0
"""Longer than any step here on a busy machine."""
MODES: Final = ("legacy", "2026-07-28")


@asynccontextmanager
async def running_gateway(folder: Path, *configs: UpstreamConfig) -> AsyncGenerator[str]:
    async with (
        running_application(
            folder, *configs, auth="off", inline_wait_seconds=WINDOW_SECONDS, connect_patience_seconds=60.0
        ) as ringback,
        serving(ringback.app.api) as server,
    ):
        yield server.url


@asynccontextmanager
async def open_client(url: str, mode: Any) -> AsyncGenerator[Client]:
    async def answer(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context, params
        return types.ElicitResult(action="accept", content={"interpretation": "programming"})

    async with Client(url, mode=mode, elicitation_callback=answer) as client:
        yield client


def text(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


@pytest.mark.requirement("R28")
async def test_git_and_time_from_pypi_are_served_over_stdio(tmp_path: Path) -> None:
    git = make_python_config("-m", "mcp_server_git", name="git")
    time = make_python_config("-m", "mcp_server_time", name="time")
    async with running_gateway(tmp_path, git, time) as url:
        async with open_client(f"{url}/time", "legacy") as client:
            now = await client.call_tool("get_current_time", {"timezone": "Europe/Madrid"})
        assert json.loads(text(now))["timezone"] == "Europe/Madrid"
        for mode in MODES:
            async with open_client(f"{url}/git", mode) as client:
                names = [tool.name for tool in (await client.list_tools()).tools]
                status = await client.call_tool("git_status", {"repo_path": str(REPOSITORY)})
                refused = await client.call_tool("git_status", {"repo": str(REPOSITORY)})

            assert "git_log" in names
            assert "Repository status" in text(status)
            assert refused.is_error
            assert "repo_path" in text(refused)


@pytest.mark.requirement("R14")
@pytest.mark.requirement("R15")
@pytest.mark.requirement("R28")
@pytest.mark.requirement("R32")
async def test_the_reference_server_has_a_task_only_tool_that_requests_input(tmp_path: Path, *, deep: bool) -> None:
    """Clients call it without a task, which its own server refuses; one of them gets a pending result."""
    isolation = (
        Isolation.CALL if deep else Isolation.SHARED
    )  # the drivers' tests have both; each process takes half a second
    patient = replace(await make_stdio_config(isolation=isolation), name="patient")
    hasty = replace(patient, name="hasty", tool_inline_wait_seconds={RESEARCH_TOOL: 0.1})
    async with running_gateway(tmp_path, patient, hasty) as url:
        for mode in MODES if deep else MODES[:1]:
            async with open_client(f"{url}/patient", mode) as one, open_client(f"{url}/hasty", mode) as other:
                echoed, researched, found = await asyncio.gather(
                    one.call_tool("echo", {"message": "hello"}),
                    one.call_tool(RESEARCH_TOOL, {"topic": "python", "ambiguous": True}),
                    resume_result(other),
                )

            assert text(echoed) == "Echo: hello"
            assert "Research Report: python (programming)" in text(researched)
            assert "Research Report: python" in text(found)


async def resume_result(client: Client) -> types.CallToolResult:
    pending = await client.call_tool(RESEARCH_TOOL, {"topic": "python"})
    assert pending.structured_content is not None
    call_id = pending.structured_content["ringback_pending"]["call_id"]
    return await client.call_tool("ringback_wait_for_call", {"call_id": call_id, "wait_seconds": 50})
