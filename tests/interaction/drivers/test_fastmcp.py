"""FastMCP's tasks, from a process of its own: a server that was not made with the SDK that we speak with."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from ringback.domain.call_outcome import CallOutcome
from ringback.upstreams.registry import UpstreamRegistry
from scripts.ports import free_port
from tests.support.calls import answer_call, make_call_to, request_cancel, wait_for_handle, wait_for_input_request
from tests.support.engine import Engine
from tests.support.examples import CALL
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import make_http_config, open_upstreams

SERVER: Final = Path(__file__).parents[2] / "support" / "fastmcp_upstream.py"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@asynccontextmanager
async def running_fastmcp_server(ledger: Path) -> AsyncGenerator[UpstreamRegistry]:
    """The upstream `reports`, connected."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SERVER), str(port), str(ledger), stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        config = make_http_config(f"http://127.0.0.1:{port}/mcp", name="reports")
        async with open_upstreams(config, patience_seconds=WAIT_SECONDS) as upstreams:
            async with upstreams.open_call_session(replace(CALL, upstream="reports")):
                pass  # it has started
            yield upstreams
    finally:
        process.kill()
        await process.wait()


@pytest.mark.requirement("R28")
async def test_its_tasks_are_followed_answered_and_cancelled(engine: Engine, ledger: Path) -> None:
    added = make_call_to(engine, "add", upstream="reports", arguments={"first": 20, "second": 22})
    built = make_call_to(engine, "build_report", upstream="reports", arguments={"seconds": 0.2})
    endless = make_call_to(engine, "build_report", upstream="reports", arguments={"seconds": 3600.0})
    painted = make_call_to(engine, "paint", upstream="reports")
    await engine.insert_calls(added, built, endless, painted)

    async with running_fastmcp_server(ledger) as upstreams:
        async with engine.running_runner(upstreams):
            await engine.wait_until_final(added, built)
            await wait_for_handle(engine, endless)
            asked = await wait_for_input_request(engine, painted)
        (key,) = asked.input_requests
        await answer_call(engine, painted, {key: {"action": "accept", "content": {"colour": "blue"}}})
        async with engine.running_runner(upstreams):
            await request_cancel(engine, endless)
            ended = await engine.wait_until_final(added, built, painted, endless)

    assert [call.outcome for call in ended] == [CallOutcome.RESULT] * 3 + [CallOutcome.CANCELLED]
    assert b"42" in (await engine.read_result(added) or b"")
    assert b"built" in (await engine.read_result(built) or b"")
    assert b"painted blue" in (await engine.read_result(painted) or b"")
    assert read_begun_tools(ledger) == ["build_report", "build_report", "paint"]


def read_begun_tools(ledger: Path) -> list[str]:
    return sorted(ledger.read_text().split())
