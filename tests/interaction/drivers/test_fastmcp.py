"""FastMCP's tasks: a server that was not made with the SDK that we speak with."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ringback.domain.call_outcome import CallOutcome
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.calls import answer_call, make_call_to, request_cancel, wait_for_handle, wait_for_input_request
from tests.support.engine import Engine
from tests.support.fastmcp_upstream import serving_fastmcp
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import make_http_config, open_upstreams


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@asynccontextmanager
async def running_fastmcp_server(ledger: Path) -> AsyncGenerator[UpstreamRegistry]:
    """The upstream `reports`, connected."""
    async with (
        serving_fastmcp(ledger) as url,
        open_upstreams(make_http_config(url, name="reports"), patience_seconds=WAIT_SECONDS) as upstreams,
    ):
        yield upstreams


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
