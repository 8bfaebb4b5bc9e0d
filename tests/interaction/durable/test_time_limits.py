"""How long a direct call may take, and how long a request waits for what finds the call again."""

import asyncio
from pathlib import Path

import pytest

from ringback.client.durable import CallFailed, InputRequired
from ringback.client.durable.clock import SystemDurableClock
from tests.support.durable_calls import TIME_LIMIT_SECONDS, DeadlineClock, calling, request_call
from tests.support.legacy_upstream import LegacyUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.task_upstream import TaskUpstream
from tests.support.upstreams import ControlledUpstream


async def test_a_task_whose_time_is_over_is_cancelled_at_the_server_and_has_timed_out(tmp_path: Path) -> None:
    upstream, clock = TaskUpstream(), DeadlineClock()
    async with calling(upstream.app(), tmp_path, clock=clock) as (_, make_caller):
        handle = await request_call(make_caller(), "work", timeout_seconds=TIME_LIMIT_SECONDS)
        clock.has_expired.set()
        with pytest.raises(CallFailed, match="timeout_seconds passed") as failed:
            await make_caller().join_call_tool(handle)

    assert failed.value.outcome == "timed_out"
    assert upstream.count_requests("tasks/cancel") == 1


async def test_a_plain_call_whose_time_is_over_is_cancelled(tmp_path: Path) -> None:
    upstream, clock = ControlledUpstream(), DeadlineClock()
    async with calling(upstream.app(), tmp_path, clock=clock) as (_, make_caller):
        caller = make_caller()
        handle = await request_call(caller, "hold", timeout_seconds=TIME_LIMIT_SECONDS)
        await upstream.wait_until_held(1)
        clock.has_expired.set()
        with pytest.raises(CallFailed) as failed:
            await caller.join_call_tool(handle)
        await upstream.cancelled.wait()

    assert failed.value.outcome == "timed_out"


@pytest.mark.parametrize("tool", ["work", "long"])
async def test_a_legacy_call_whose_time_is_over_is_cancelled(tmp_path: Path, tool: str) -> None:
    upstream, clock = LegacyUpstream(), DeadlineClock()
    async with calling(upstream.app(), tmp_path, clock=clock) as (_, make_caller):
        handle = await request_call(make_caller(), tool, timeout_seconds=TIME_LIMIT_SECONDS)
        clock.has_expired.set()
        with pytest.raises(CallFailed) as failed:
            await make_caller().join_call_tool(handle)
        if tool == "work":
            await upstream.cancelled.wait()

    assert failed.value.outcome == "timed_out"
    assert tool == "work" or upstream.tasks["task-1"].status == "cancelled"


class LateClock(SystemDurableClock):
    """The system's clock, set forward by the test."""

    ahead_seconds = 0.0

    def now(self) -> float:
        return super().now() + self.ahead_seconds


@pytest.mark.parametrize("tool", ["confirm", "work"])
async def test_a_question_of_a_call_whose_time_is_over_is_not_raised_again(tmp_path: Path, tool: str) -> None:
    """No process follows the call while it waits. Each join asked a person, and the answer was never sent."""
    upstream, clock = TaskUpstream(), LateClock()
    async with calling(upstream.app(), tmp_path, clock=clock) as (_, make_caller):
        handle = await request_call(make_caller(), tool, accepts_input=True, timeout_seconds=TIME_LIMIT_SECONDS)
        if tool == "work":
            upstream.tasks["task-1"].request_input("sure")
        with pytest.raises(InputRequired):
            await make_caller().join_call_tool(handle)

        clock.ahead_seconds = TIME_LIMIT_SECONDS
        with pytest.raises(CallFailed, match="timeout_seconds passed") as failed:
            await make_caller().join_call_tool(handle)
        (snapshot,) = await make_caller().list_calls()

    assert (failed.value.outcome, snapshot.status, snapshot.input_requests) == ("timed_out", "failed", {})
    assert upstream.count_requests("tasks/cancel") == (1 if tool == "work" else 0)


async def test_a_call_that_ends_in_time_keeps_its_result(tmp_path: Path) -> None:
    async with calling(ControlledUpstream().app(), tmp_path) as (_, make_caller):
        caller = make_caller()
        handle = await request_call(caller, "echo", {"text": "hello"}, timeout_seconds=TIME_LIMIT_SECONDS)
        assert await caller.join_call_tool(handle) is not None


async def test_a_time_limit_that_is_none_is_refused(tmp_path: Path) -> None:
    async with calling(ControlledUpstream().app(), tmp_path) as (_, make_caller):
        with pytest.raises(ValueError, match="more than 0"):
            await request_call(make_caller(), "echo", timeout_seconds=0)


async def test_a_legacy_server_without_event_ids_does_not_cost_the_start_timeout(tmp_path: Path) -> None:
    """The start timeout is the limit of the whole test, and the tool ends only afterwards."""
    upstream = LegacyUpstream()
    async with calling(upstream.app(keeps_events=False), tmp_path) as (_, make_caller):
        caller = make_caller()
        handle = await request_call(caller, "work", start_timeout_seconds=2 * WAIT_SECONDS)
        assert (handle.kind, handle.rejoinable) == ("plain", False)
        joining = asyncio.create_task(caller.join_call_tool(handle))
        upstream.release.set()
        assert await joining is not None
