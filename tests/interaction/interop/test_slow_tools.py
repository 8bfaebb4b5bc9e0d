"""A tool of half a minute with every client: a waiting client gets the result, any other finds it later."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import mcp_types as types
import pytest
from fastmcp import Client as FastMCPClient
from fastmcp_tasks import call_tool_task as _call_tool_task  # pyright: ignore[reportUnknownVariableType] - it is generic
from mcp import Client

from tests.interaction.interop.conftest import GRACE_SECONDS
from tests.support.application import running_application
from tests.support.slow_upstream import SlowUpstream
from tests.support.upstreams import make_http_config, serving

SECONDS: Final = 0.3
SECONDS_DEEP: Final = 30.0
TIMEOUT_MARGIN_SECONDS: Final = 20.0
"""The slack of the longer inline wait on a busy machine: with 30 s, the longest inline wait that exists."""
INLINE_WAIT_SECONDS: Final = 120.0
"""A request without a response by then gets none."""
MODES: Final = ("legacy", "2026-07-28")


@dataclass(frozen=True, slots=True)
class SlowToolEndpoints:
    """One server at three URLs."""

    worker: SlowUpstream
    direct: str
    inline_url: str
    """Through a Ringback whose inline wait is longer than the tool takes."""
    task_url: str
    """Through a Ringback with a third of that inline wait."""


@pytest.fixture
async def endpoints(tmp_path: Path, *, deep: bool) -> AsyncGenerator[SlowToolEndpoints]:
    worker = SlowUpstream(SECONDS_DEEP if deep else SECONDS, told_first=len(MODES) + 2)  # and two with tasks
    async with serving(worker.app()) as server:
        config = make_http_config(server.url)
        patient = replace(config, name="patient", inline_wait_seconds=worker.seconds + TIMEOUT_MARGIN_SECONDS)
        hasty = replace(config, name="hasty", inline_wait_seconds=worker.seconds / 3)
        async with (
            running_application(tmp_path, patient, hasty, auth="off", task_grace_seconds=GRACE_SECONDS) as ringback,
            serving(ringback.app.api) as near,
        ):
            yield SlowToolEndpoints(worker, server.url, f"{near.url}/patient", f"{near.url}/hasty")


Answer = tuple[Any, Any]
"""The content and structuredContent of a result."""


async def call_with_sdk(url: str, mode: Any) -> Answer:
    async with Client(url, mode=mode) as client:
        result = await client.call_tool("work", {})
    return result.content, result.structured_content


async def resume_with_sdk(endpoints: SlowToolEndpoints, mode: Any) -> Answer:
    async with Client(endpoints.task_url, mode=mode) as client:
        first = await client.call_tool("work", {})
        assert first.structured_content is not None
        pending = first.structured_content["ringback_pending"]
        assert pending["status"] == "working"
        endpoints.worker.confirm_client_informed()
        waited = await client.call_tool("ringback_wait_for_call", {"call_id": pending["call_id"], "wait_seconds": 50})
    assert waited.structured_content is not None
    result = types.CallToolResult.model_validate(waited.structured_content["result"])
    return result.content, result.structured_content


async def call_with_fastmcp(url: str) -> Answer:
    """The client supports tasks, and waits for its task."""
    async with FastMCPClient[Any](url) as client:
        result = await client.call_tool("work")
    return result.content, result.structured_content


async def call_as_fastmcp_task(endpoints: SlowToolEndpoints, url: str) -> Answer:
    async with FastMCPClient[Any](url) as client:
        task: Any = await _call_tool_task(client, "work", {})
        assert (await task.status()).status == "working"
        endpoints.worker.confirm_client_informed()
        result = await task
    return result.content, result.structured_content


@pytest.mark.requirement("R10")
@pytest.mark.requirement("R14")
@pytest.mark.requirement("R28")
async def test_every_client_gets_the_result_that_it_gets_without_ringback(endpoints: SlowToolEndpoints) -> None:
    requested = [
        *(call_with_sdk(url, mode) for url in (endpoints.direct, endpoints.inline_url) for mode in MODES),
        *(resume_with_sdk(endpoints, mode) for mode in MODES),
        *(call_with_fastmcp(url) for url in (endpoints.direct, endpoints.inline_url, endpoints.task_url)),
        *(call_as_fastmcp_task(endpoints, url) for url in (endpoints.inline_url, endpoints.task_url)),
    ]
    async with asyncio.timeout(INLINE_WAIT_SECONDS):
        expected, *others = await asyncio.gather(*requested)

    assert expected[1] is not None
    assert others == [expected] * len(others)
