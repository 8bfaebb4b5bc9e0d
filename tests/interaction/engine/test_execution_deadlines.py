"""The deadline of a call passes while its tool runs, while its upstream is unreachable, or while it has no execution."""

import pytest

from ringback.domain.call_outcome import CallOutcome
from ringback.runner import execution as drive_module
from tests.support.calls import notify_execution
from tests.support.clock import OffsetClock
from tests.support.engine import BlockingTool, Engine, ScriptedUpstreams
from tests.support.executions import (
    SHORT_DEADLINE_SECONDS,
    executing,
    lease_call_with_handle,
    lease_new_call,
    run_execution,
)


@pytest.mark.requirement("R33")
async def test_a_deadline_during_the_tool_cancels_upstream_and_times_the_call_out(
    engine: Engine, clock: OffsetClock
) -> None:
    call, tool = await lease_new_call(engine), BlockingTool()

    async with executing(engine.make_execution(call, ScriptedUpstreams(tool))):
        await tool.wait_until_inside(1)
        clock.advance(3600)
        await notify_execution(engine, call)

    assert [each.id for each in tool.cancelled] == [call.id]
    assert (await engine.read_call(call)).outcome is CallOutcome.TIMED_OUT


async def test_an_execution_wakes_at_the_deadline(engine: Engine, clock: OffsetClock) -> None:
    clock.stop()
    call, tool = await lease_new_call(engine, deadline_in=SHORT_DEADLINE_SECONDS), BlockingTool()

    async with executing(engine.make_execution(call, ScriptedUpstreams(tool))):
        await tool.wait_until_inside(1)
        clock.resume()

    assert (await engine.read_call(call)).outcome is CallOutcome.TIMED_OUT


@pytest.mark.requirement("R33")
async def test_a_deadline_while_the_upstream_is_unreachable_rejects_the_call(engine: Engine) -> None:
    call = await lease_new_call(engine, deadline_in=SHORT_DEADLINE_SECONDS)
    upstreams = ScriptedUpstreams(away=frozenset({"git"}))

    await run_execution(engine.make_execution(call, upstreams))

    assert upstreams.called == []
    ended = await engine.read_call(call)
    assert (ended.outcome, ended.dispatched_at) == (CallOutcome.REJECTED, None)


async def test_a_call_that_is_leased_too_late_is_never_dispatched(engine: Engine) -> None:
    call = await lease_new_call(engine, deadline_in=-1)
    upstreams = ScriptedUpstreams()

    await run_execution(engine.make_execution(call, upstreams))

    assert upstreams.called == []
    assert (await engine.read_call(call)).outcome is CallOutcome.REJECTED


@pytest.mark.requirement("R33")
async def test_a_call_whose_deadline_passed_without_a_runner_is_cancelled_upstream(engine: Engine) -> None:
    call, upstreams = await lease_call_with_handle(engine, "task"), ScriptedUpstreams()

    await run_execution(engine.make_execution(call, upstreams))

    assert ([each.id for each in upstreams.cancelled], upstreams.called) == ([call.id], [])
    assert (await engine.read_call(call)).outcome is CallOutcome.TIMED_OUT


async def test_a_call_whose_time_was_up_between_two_rounds_needs_no_upstream_to_end(engine: Engine) -> None:
    call, upstreams = await lease_call_with_handle(engine, "mrtr"), ScriptedUpstreams(away=frozenset({"git"}))

    await run_execution(engine.make_execution(call, upstreams))

    assert not upstreams.session_requested.is_set()
    assert (await engine.read_call(call)).outcome is CallOutcome.TIMED_OUT


async def test_a_call_past_its_deadline_ends_also_when_its_upstream_stays_unreachable(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drive_module, "CANCEL_TIMEOUT_SECONDS", SHORT_DEADLINE_SECONDS)
    call, upstreams = await lease_call_with_handle(engine, "task"), ScriptedUpstreams(away=frozenset({"git"}))

    await run_execution(engine.make_execution(call, upstreams))

    assert upstreams.cancelled == []
    assert (await engine.read_call(call)).outcome is CallOutcome.TIMED_OUT
