"""A stopped runner begins no call, waits for running ones up to the drain time, and hands back the rest."""

import asyncio
import logging

import pytest

from ringback.domain.call_outcome import CallOutcome
from tests.support.calls import make_calls
from tests.support.engine import WAIT_SECONDS, BlockingTool, Engine, ScriptedUpstreams


async def test_a_stopped_runner_waits_for_running_calls_and_begins_none(engine: Engine) -> None:
    (running, queued), tool = make_calls(engine, 2), BlockingTool()
    await engine.insert_calls(running)

    async with engine.running_runner(ScriptedUpstreams(tool)) as stop:
        await tool.wait_until_inside(1)
        stop.set()
        await engine.insert_calls(queued)
        tool.release.set()

    assert (await engine.read_call(running)).outcome is CallOutcome.RESULT
    assert await engine.read_call(queued) == queued


@pytest.mark.requirement("R33")
async def test_calls_that_still_run_after_the_drain_end_as_unknown(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="ringback")
    (running, waiting), tool = [*make_calls(engine, 1), *make_calls(engine, 1, upstream="away")], BlockingTool()
    await engine.insert_calls(running, waiting)
    upstreams = ScriptedUpstreams(tool, capacity={"git": 1, "away": 1}, away=frozenset({"away"}))

    async with engine.running_runner(upstreams, drain_seconds=0.0) as stop:
        await tool.wait_until_inside(1)
        stop.set()

    (draining,) = (record for record in caplog.records if record.message == "service.draining")
    assert (draining.__dict__["calls"], draining.__dict__["seconds"]) == (2, 0.0)
    assert len(tool.cancelled) == 1
    assert (await engine.read_call(running)).outcome is CallOutcome.UNKNOWN
    assert (await engine.read_call(waiting)).lease_token is None


async def test_the_next_runner_continues_calls_that_were_handed_back(engine: Engine) -> None:
    (call,) = make_calls(engine, 1)
    await engine.insert_calls(call)
    away = ScriptedUpstreams(away=frozenset({"git"}))

    async with engine.running_runner(away):
        await asyncio.wait_for(away.session_requested.wait(), WAIT_SECONDS)
    async with engine.running_runner(ScriptedUpstreams()):
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, ended.runs) == (CallOutcome.RESULT, 1)
