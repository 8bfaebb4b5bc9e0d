"""A runner that is told to stop: it begins nothing, waits for what runs as long as it may, and hands back the rest."""

import asyncio

import pytest

from ringback.domain.call import CallOutcome
from tests.support.calls import calls_of
from tests.support.engine import WAIT_SECONDS, Engine, Holding, ScriptedUpstreams


async def test_a_stopped_runner_waits_for_what_runs_and_begins_nothing(engine: Engine) -> None:
    (running, queued), tool = calls_of(engine, 2), Holding()
    await engine.queue(running)

    async with engine.running(ScriptedUpstreams(tool)) as stop:
        await tool.until_inside(1)
        stop.set()
        await engine.queue(queued)
        tool.release.set()

    assert (await engine.call(running)).outcome is CallOutcome.RESULT
    assert await engine.call(queued) == queued


@pytest.mark.requirement("R33")
async def test_what_has_not_ended_when_the_time_is_over_is_cut_off_and_unknown(engine: Engine) -> None:
    (running, waiting), tool = [*calls_of(engine, 1), *calls_of(engine, 1, upstream="away")], Holding()
    await engine.queue(running, waiting)
    upstreams = ScriptedUpstreams(tool, capacity={"git": 1, "away": 1}, away=frozenset({"away"}))

    async with engine.running(upstreams, drain_seconds=0.0) as stop:
        await tool.until_inside(1)
        stop.set()

    assert len(tool.called_off) == 1
    assert (await engine.call(running)).outcome is CallOutcome.UNKNOWN
    assert (await engine.call(waiting)).lease_token is None


async def test_the_next_runner_takes_up_what_was_handed_back(engine: Engine) -> None:
    (call,) = calls_of(engine, 1)
    await engine.queue(call)
    away = ScriptedUpstreams(away=frozenset({"git"}))

    async with engine.running(away):
        await asyncio.wait_for(away.wanted.wait(), WAIT_SECONDS)
    async with engine.running(ScriptedUpstreams()):
        (ended,) = await engine.until_final(call)

    assert (ended.outcome, ended.runs) == (CallOutcome.RESULT, 1)
