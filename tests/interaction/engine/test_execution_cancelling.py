"""Cancelling a call that has a running execution: before its dispatch, while the tool runs, and after it."""

import asyncio

import pytest

from ringback.domain.call import Call
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from tests.support.calls import request_cancel
from tests.support.engine import WAIT_SECONDS, BlockingTool, Engine, OnProgress, ScriptedUpstreams
from tests.support.executions import executing, lease_call_with_handle, lease_new_call, run_execution
from tests.support.stored_work import COMPLETED_RESULT, RESULT


@pytest.mark.requirement("R33")
async def test_cancelling_a_running_call_cancels_upstream_and_ends_it(engine: Engine) -> None:
    call, tool = await lease_new_call(engine), BlockingTool()

    async with executing(engine.make_execution(call, ScriptedUpstreams(tool))):
        await tool.wait_until_inside(1)
        await request_cancel(engine, call)

    assert [each.id for each in tool.cancelled] == [call.id]
    assert (await engine.read_call(call)).outcome is CallOutcome.CANCELLED


async def test_a_call_that_was_cancelled_before_its_dispatch_never_reaches_the_upstream(engine: Engine) -> None:
    call = await lease_new_call(engine)
    upstreams = ScriptedUpstreams()
    await engine.cancel_call(call)

    await run_execution(engine.make_execution(call, upstreams))

    assert upstreams.called == []
    ended = await engine.read_call(call)
    assert (ended.outcome, ended.dispatched_at) == (CallOutcome.CANCELLED, None)
    assert len(await engine.read_events()) == 1


@pytest.mark.requirement("R33")
async def test_an_upstream_that_ends_during_cancellation_completes_the_call(engine: Engine) -> None:
    call, entered = await lease_new_call(engine), asyncio.Event()

    async def answer_all_the_same(driven_call: Call, on_progress: OnProgress) -> CallCompletion:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return COMPLETED_RESULT
        raise AssertionError

    async with executing(engine.make_execution(call, ScriptedUpstreams(answer_all_the_same))):
        await asyncio.wait_for(entered.wait(), WAIT_SECONDS)
        await request_cancel(engine, call)

    ended = await engine.read_call(call)
    assert (ended.outcome, ended.cancel_requested) == (CallOutcome.RESULT, True)
    assert await engine.read_result(call) == RESULT


@pytest.mark.requirement("R33")
async def test_a_call_cancelled_before_its_execution_subscribed_is_cancelled_at_once(engine: Engine) -> None:
    call = await lease_call_with_handle(engine, "task", deadline_in=3600)
    upstreams = ScriptedUpstreams(BlockingTool())
    await request_cancel(engine, call)

    await run_execution(engine.make_execution(call, upstreams))

    assert [each.id for each in upstreams.cancelled] == [call.id]
    assert (await engine.read_call(call)).outcome is CallOutcome.CANCELLED


async def test_a_call_between_two_rounds_is_cancelled_without_its_upstream(engine: Engine) -> None:
    call = await lease_call_with_handle(engine, "mrtr", deadline_in=3600)
    upstreams = ScriptedUpstreams(away=frozenset({"git"}))

    async with executing(engine.make_execution(call, upstreams)):
        await upstreams.session_requested.wait()
        await request_cancel(engine, call)

    assert (await engine.read_call(call)).outcome is CallOutcome.CANCELLED
