"""The story of the first thread, with real processes: request in A, kill A, join in B, which times out, and join in C."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ringback.client.durable import DurableCaller, SQLiteRequestState
from tests.support.agent_processes import AgentSpec, requesting_agent, run_joining_agent
from tests.support.legacy_upstream import LegacyUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.processes import running_process
from tests.support.redis_server import running_redis
from tests.support.task_upstream import TaskUpstream
from tests.support.upstreams import serving

pytestmark = [pytest.mark.requirement("R05"), pytest.mark.requirement("R02")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A server with a tool that reports progress, and ends when the test says so."""

    url: str
    tool: str
    report: Callable[[], None]
    end: Callable[[], None]
    starts: Callable[[], list[str]]
    upstream: str | None = None
    kind: str


@asynccontextmanager
async def task_stage(_folder: Path) -> AsyncGenerator[Stage]:
    server = TaskUpstream()
    async with serving(server.app()) as http:
        yield Stage(
            url=http.url,
            tool="work",
            report=lambda: server.tasks["task-1"].set_state(status="working", statusMessage="begun"),
            end=lambda: server.tasks["task-1"].complete_task("done"),
            starts=lambda: server.side_effects,
            kind="task",
        )


@asynccontextmanager
async def legacy_task_stage(_folder: Path) -> AsyncGenerator[Stage]:
    server = LegacyUpstream()

    def report() -> None:
        server.tasks["task-1"].message = "begun"

    def end() -> None:
        server.tasks["task-1"].end_task()

    async with serving(server.app()) as http:
        yield Stage(
            url=http.url,
            tool="long",
            report=report,
            end=end,
            starts=lambda: server.effects,
            kind="legacy_task",
        )


@asynccontextmanager
async def stream_stage(_folder: Path) -> AsyncGenerator[Stage]:
    server = LegacyUpstream()
    async with serving(server.app()) as http:
        yield Stage(
            url=http.url,
            tool="work",
            report=lambda: None,  # it reports by itself
            end=server.release.set,
            starts=lambda: server.effects,
            kind="stream",
        )


@asynccontextmanager
async def ringback_stage(folder: Path) -> AsyncGenerator[Stage]:
    async with stream_stage(folder) as stage, running_process(folder=str(folder), upstream=stage.url) as service:
        yield Stage(
            url=service.url,
            tool="work",
            report=stage.report,
            end=stage.end,
            starts=stage.starts,
            upstream="stage",
            kind="ringback",
        )


@asynccontextmanager
async def gateway_stage(folder: Path) -> AsyncGenerator[Stage]:
    """A Ringback as an MCP server, whose tool calls are tasks."""
    async with ringback_stage(folder) as stage:
        yield replace(stage, url=f"{stage.url}/mcp/stage", upstream=None, kind="task")


STAGES: dict[str, Any] = {
    "task": task_stage,
    "legacy_task": legacy_task_stage,
    "stream": stream_stage,
    "ringback": ringback_stage,
    "gateway": gateway_stage,
}


@pytest.mark.requirement("R03")
@pytest.mark.requirement("R09")
@pytest.mark.parametrize("kind", STAGES)
async def test_a_call_of_a_killed_agent_is_joined_by_two_others(kind: str, tmp_path: Path) -> None:
    async with STAGES[kind](tmp_path) as stage:
        state = str(tmp_path / "calls.db")
        spec = AgentSpec(target=stage.url, state=state, tool=stage.tool, upstream=stage.upstream)
        async with requesting_agent(spec) as agent:
            handle = agent.handle
            await agent.kill()
        assert (handle.kind, handle.rejoinable, handle.correlation_id) == (stage.kind, True, "c1")

        stage.report()
        second = await run_joining_agent(spec, handle, timeout_seconds=0.5)
        assert (second.error, second.result) == (None, None)
        assert {each.message for each in second.progress} == {"begun"}

        stage.end()
        third = await run_joining_agent(spec, None, timeout_seconds=WAIT_SECONDS)

    assert third.error is None
    assert third.result["content"]
    assert third.progress[0].message in {"begun", "nearly done"}, "the last that was stored when the agent joined"
    assert stage.starts() == [stage.tool]


@pytest.mark.requirement("R04")
async def test_a_state_in_memory_says_that_another_process_cannot_join(tmp_path: Path) -> None:
    async with task_stage(tmp_path) as stage:
        spec = AgentSpec(target=stage.url, state="memory", tool=stage.tool)
        async with requesting_agent(spec) as agent:
            assert not agent.handle.state_is_shared
            report = await run_joining_agent(spec, agent.handle, timeout_seconds=1)

    assert report.error is not None
    assert "another process cannot join" in report.error
    assert "SQLiteRequestState" in report.error


@pytest.mark.requirement("R04")
async def test_a_state_in_redis_is_joined_by_another_process(tmp_path: Path) -> None:
    async with task_stage(tmp_path) as stage, running_redis() as redis:
        spec = AgentSpec(target=stage.url, state=redis, tool=stage.tool)
        async with requesting_agent(spec) as agent:
            assert agent.handle.state_is_shared
            await agent.kill()
        stage.end()
        report = await run_joining_agent(spec, None, timeout_seconds=WAIT_SECONDS)

    assert (report.error, report.result["content"]) == (None, [{"type": "text", "text": "done"}])


@pytest.mark.requirement("R08")
async def test_a_result_is_joined_again_after_the_server_is_gone(tmp_path: Path) -> None:
    async with task_stage(tmp_path) as stage:
        spec = AgentSpec(target=stage.url, state=str(tmp_path / "calls.db"), tool=stage.tool)
        async with requesting_agent(spec) as agent:
            stage.end()
            first = await run_joining_agent(spec, agent.handle, timeout_seconds=WAIT_SECONDS)
    async with DurableCaller(stage.url, state=SQLiteRequestState(tmp_path / "calls.db")) as caller:
        assert await caller.join_call_tool(agent.handle) == first.result
