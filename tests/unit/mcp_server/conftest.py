"""A running service and its built-in tools."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ringback.mcp_server.builtin_tools.call_tools import CallTools
from ringback.mcp_server.builtin_tools.poll_limiter import PollLimiter
from tests.support.builtin_tools import BuiltinToolsHarness
from tests.support.service import running_service


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncGenerator[BuiltinToolsHarness]:
    async with running_service(tmp_path) as service:
        behind = service.services
        tools = CallTools(
            calls=behind.calls,
            input_answers=behind.input_answers,
            call_resumption=behind.call_resumption,
            call_resumes=behind.call_resumes,
            poll_limiter=PollLimiter(),
            is_paused=behind.upstream_controls.is_paused,
        )
        yield BuiltinToolsHarness(service, tools)
