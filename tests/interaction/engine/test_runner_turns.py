"""Which calls run now: each upstream as many as it takes, each principal its turn, and nobody waits for another's trouble."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from ringback.domain.call import CallOutcome, CallStatus
from tests.support.calls import ask_to_cancel, calls_of
from tests.support.engine import WAIT_SECONDS, Engine, Holding, ScriptedUpstreams, until
from tests.support.examples import ALICE, BOB
from tests.support.stores import UnsteadyStore
from tests.support.upstreams import Stage, http_config, opened, serving

MANY = 300
"""Calls at once on one upstream: three times the pool of the SDK's own HTTP client."""


# -- how many at once, and who is next --------------------------------------------------------------------------------------


async def test_an_upstream_gets_as_many_calls_at_once_as_it_takes(engine: Engine) -> None:
    calls, tool = calls_of(engine, 7), Holding()
    await engine.queue(*calls)

    async with engine.running(ScriptedUpstreams(tool, capacity={"git": 3})):
        await tool.until_inside(3)
        queued = [call for call in [await engine.call(call) for call in calls] if call.dispatched_at is None]
        tool.release.set()
        await engine.until_final(*calls)

    assert [call.lease_token for call in queued] == [None] * 4
    assert tool.inside_max == 3


async def test_each_upstream_has_room_of_its_own(engine: Engine) -> None:
    tool = Holding()
    await engine.queue(*calls_of(engine, 5, upstream="git"), *calls_of(engine, 5, upstream="time"))

    async with engine.running(ScriptedUpstreams(tool, capacity={"git": 1, "time": 2})):
        await tool.until_inside(3)
        assert sorted(call.upstream for call in tool.inside) == ["git", "time", "time"]
        tool.release.set()


@pytest.mark.requirement("R11")
async def test_principals_take_turns_on_a_busy_upstream(engine: Engine) -> None:
    calls = [*calls_of(engine, 6, principal=ALICE), *calls_of(engine, 2, principal=BOB)]
    upstreams = ScriptedUpstreams(capacity={"git": 1})
    await engine.queue(*calls)

    async with engine.running(upstreams):
        await engine.until_final(*calls)

    assert [call.principal for call in upstreams.called] == [ALICE, BOB, ALICE, BOB, ALICE, ALICE, ALICE, ALICE]


@pytest.mark.requirement("R28")
async def test_hundreds_of_calls_to_one_upstream_are_inside_at_once(engine: Engine) -> None:
    stage, calls = Stage(), calls_of(engine, MANY, upstream="stage", tool="hold", arguments={})
    await engine.queue(*calls)

    async with serving(stage.app()) as server:
        config = replace(http_config(server.url), max_concurrent=MANY)
        async with opened(config) as upstreams, engine.running(upstreams):
            await asyncio.wait_for(stage.until_inside(MANY), 3 * WAIT_SECONDS)
            stage.release.set()
            ended = await engine.until_final(*calls)

    assert {call.outcome for call in ended} == {CallOutcome.RESULT}
    assert len(stage.calls) == MANY


@pytest.mark.requirement("R11")
async def test_an_upstream_that_is_away_does_not_hold_up_the_others(engine: Engine) -> None:
    waiting, served = calls_of(engine, 20, upstream="away"), calls_of(engine, 20, upstream="git")
    await engine.queue(*waiting, *served)

    async with engine.running(ScriptedUpstreams(capacity={"away": 4, "git": 4}, away=frozenset({"away"}))):
        ended = await engine.until_final(*served)

    assert {call.outcome for call in ended} == {CallOutcome.RESULT}
    left = [await engine.call(call) for call in waiting]
    assert {(call.status, call.dispatched_at, call.lease_token) for call in left} == {(CallStatus.WORKING, None, None)}


async def test_a_call_that_is_queued_later_is_begun_at_once(engine: Engine) -> None:
    (call,) = calls_of(engine, 1)

    async with engine.running(ScriptedUpstreams(), poll_seconds=3600.0):
        await engine.queue(call)
        (ended,) = await engine.until_final(call)

    assert ended.outcome is CallOutcome.RESULT


async def test_a_store_that_cannot_be_written_for_a_while_holds_calls_up_and_loses_none(
    engine: Engine, unsteady: UnsteadyStore
) -> None:
    calls = calls_of(engine, 5)
    await engine.queue(*calls)
    unsteady.refusals = 3

    async with engine.running(ScriptedUpstreams(), poll_seconds=0.01):
        ended = await engine.until_final(*calls)

    assert {call.outcome for call in ended} == {CallOutcome.RESULT}


# -- cancelling -------------------------------------------------------------------------------------------------------------


async def test_a_storm_of_cancellations_calls_every_one_of_them_off(engine: Engine) -> None:
    stage, calls = Stage(), calls_of(engine, 60, upstream="stage", tool="hold", arguments={})
    await engine.queue(*calls)

    async with serving(stage.app()) as server, opened(http_config(server.url)) as upstreams:
        async with engine.running(upstreams):
            await asyncio.wait_for(stage.until_inside(len(calls)), WAIT_SECONDS)
            await asyncio.gather(*(ask_to_cancel(engine, call) for call in calls))
            ended = await engine.until_final(*calls)
        await until(partial(nobody_inside, stage))

    assert {call.outcome for call in ended} == {CallOutcome.CANCELLED}


async def nobody_inside(stage: Stage) -> bool:
    return stage.inside == 0
