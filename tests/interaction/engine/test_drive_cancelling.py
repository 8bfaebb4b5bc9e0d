"""A call that somebody wants cancelled while it is driven: it may have run, be running, or never have left."""

import asyncio

import pytest

from ringback.domain.call import Call, CallCompletion, CallOutcome
from tests.support.calls import ask_to_cancel
from tests.support.driving import a_leased_call, driven, leased_with_handle, run
from tests.support.engine import DONE, RESULT, WAIT_SECONDS, Engine, Holding, OnProgress, ScriptedUpstreams


@pytest.mark.requirement("R33")
async def test_cancelling_a_running_call_tells_the_upstream_and_ends_it(engine: Engine) -> None:
    call, tool = await a_leased_call(engine), Holding()

    async with driven(engine.drive(call, ScriptedUpstreams(tool))):
        await tool.until_inside(1)
        await ask_to_cancel(engine, call)

    assert [each.id for each in tool.called_off] == [call.id]
    assert (await engine.call(call)).outcome is CallOutcome.CANCELLED


async def test_a_call_that_was_cancelled_before_its_dispatch_never_reaches_the_upstream(engine: Engine) -> None:
    call = await a_leased_call(engine)
    upstreams = ScriptedUpstreams()
    await engine.cancel(call)

    await run(engine.drive(call, upstreams))

    assert upstreams.called == []
    ended = await engine.call(call)
    assert (ended.outcome, ended.dispatched_at) == (CallOutcome.CANCELLED, None)
    assert len(await engine.events()) == 1


@pytest.mark.requirement("R33")
async def test_an_upstream_that_ends_in_the_moment_of_cancelling_completes_the_call(engine: Engine) -> None:
    call, entered = await a_leased_call(engine), asyncio.Event()

    async def answer_all_the_same(driven_call: Call, on_progress: OnProgress) -> CallCompletion:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return DONE
        raise AssertionError

    async with driven(engine.drive(call, ScriptedUpstreams(answer_all_the_same))):
        await asyncio.wait_for(entered.wait(), WAIT_SECONDS)
        await ask_to_cancel(engine, call)

    ended = await engine.call(call)
    assert (ended.outcome, ended.cancel_requested) == (CallOutcome.RESULT, True)
    assert await engine.result(call) == RESULT


@pytest.mark.requirement("R33")
async def test_a_call_that_was_cancelled_before_its_drive_listened_is_told_to_stop_at_once(engine: Engine) -> None:
    call = await leased_with_handle(engine, "task", deadline_in=3600)
    upstreams = ScriptedUpstreams(Holding())
    await ask_to_cancel(engine, call)

    await run(engine.drive(call, upstreams))

    assert [each.id for each in upstreams.told_to_stop] == [call.id]
    assert (await engine.call(call)).outcome is CallOutcome.CANCELLED


async def test_a_call_between_two_rounds_is_cancelled_without_its_upstream(engine: Engine) -> None:
    call = await leased_with_handle(engine, "mrtr", deadline_in=3600)
    upstreams = ScriptedUpstreams(away=frozenset({"git"}))

    async with driven(engine.drive(call, upstreams)):
        await upstreams.wanted.wait()
        await ask_to_cancel(engine, call)

    assert (await engine.call(call)).outcome is CallOutcome.CANCELLED
