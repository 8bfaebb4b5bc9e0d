"""A call whose time is up: while its tool runs, while its upstream is away, or while nobody drove it."""

import pytest

from ringback.domain.call import Call, CallOutcome
from ringback.domain.ports import Transaction
from ringback.domain.signals import call_cancel_topic
from ringback.runner import drive as drive_module
from tests.support.calls import wake
from tests.support.clock import ShiftedClock
from tests.support.driving import SHORT_SECONDS, a_leased_call, driven, leased_with_handle, run
from tests.support.engine import Engine, Holding, ScriptedUpstreams


@pytest.mark.requirement("R33")
async def test_a_deadline_that_passes_while_the_tool_runs_tells_the_upstream_and_times_the_call_out(
    engine: Engine, clock: ShiftedClock
) -> None:
    call, tool = await a_leased_call(engine), Holding()

    async with driven(engine.drive(call, ScriptedUpstreams(tool))):
        await tool.until_inside(1)
        clock.advance(3600)
        await wake(engine, call)

    assert [each.id for each in tool.called_off] == [call.id]
    assert (await engine.call(call)).outcome is CallOutcome.TIMED_OUT


async def ring(engine: Engine, call: Call) -> None:
    """Wake whoever drives the call, to have it look at the world."""

    async def look(tx: Transaction) -> None:
        tx.notify(call_cancel_topic(call.id))

    await engine.store.write(look)


async def test_a_drive_wakes_by_itself_when_the_deadline_passes(engine: Engine, clock: ShiftedClock) -> None:
    clock.stop()
    call, tool = await a_leased_call(engine, deadline_in=SHORT_SECONDS), Holding()

    async with driven(engine.drive(call, ScriptedUpstreams(tool))):
        await tool.until_inside(1)
        clock.resume()

    assert (await engine.call(call)).outcome is CallOutcome.TIMED_OUT


@pytest.mark.requirement("R33")
async def test_a_deadline_that_passes_while_the_upstream_is_away_rejects_the_call(engine: Engine) -> None:
    call = await a_leased_call(engine, deadline_in=SHORT_SECONDS)
    upstreams = ScriptedUpstreams(away=frozenset({"git"}))

    await run(engine.drive(call, upstreams))

    assert upstreams.called == []
    ended = await engine.call(call)
    assert (ended.outcome, ended.dispatched_at) == (CallOutcome.REJECTED, None)


async def test_a_call_that_is_leased_too_late_is_never_dispatched(engine: Engine) -> None:
    call = await a_leased_call(engine, deadline_in=-1)
    upstreams = ScriptedUpstreams()

    await run(engine.drive(call, upstreams))

    assert upstreams.called == []
    assert (await engine.call(call)).outcome is CallOutcome.REJECTED


@pytest.mark.requirement("R33")
async def test_a_call_whose_time_was_up_while_nobody_drove_it_is_stopped_upstream(engine: Engine) -> None:
    call, upstreams = await leased_with_handle(engine, "task"), ScriptedUpstreams()

    await run(engine.drive(call, upstreams))

    assert ([each.id for each in upstreams.told_to_stop], upstreams.called) == ([call.id], [])
    assert (await engine.call(call)).outcome is CallOutcome.TIMED_OUT


async def test_a_call_whose_time_was_up_between_two_rounds_needs_no_upstream_to_end(engine: Engine) -> None:
    call, upstreams = await leased_with_handle(engine, "mrtr"), ScriptedUpstreams(away=frozenset({"git"}))

    await run(engine.drive(call, upstreams))

    assert not upstreams.wanted.is_set()
    assert (await engine.call(call)).outcome is CallOutcome.TIMED_OUT


async def test_a_call_whose_time_was_up_ends_also_when_its_upstream_stays_away(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drive_module, "ABANDON_SECONDS", SHORT_SECONDS)
    call, upstreams = await leased_with_handle(engine, "task"), ScriptedUpstreams(away=frozenset({"git"}))

    await run(engine.drive(call, upstreams))

    assert upstreams.told_to_stop == []
    assert (await engine.call(call)).outcome is CallOutcome.TIMED_OUT
