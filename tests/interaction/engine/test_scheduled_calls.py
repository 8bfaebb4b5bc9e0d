"""The runner queues a scheduled call when its time has come, without polling for it."""

from datetime import timedelta

import pytest

from ringback.domain.call import Call, CallPhase
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.ports import Transaction
from ringback.domain.signals import CALL_QUEUED_TOPIC
from tests.support.builders import make_call
from tests.support.clock import OffsetClock
from tests.support.engine import Engine, ScriptedUpstreams, wait_until

NO_POLLING = {"poll_seconds": 3600.0}
"""A call begins only because the runner was notified, or knew its time."""
SOON = timedelta(milliseconds=300)


def make_scheduled_call(engine: Engine, *, after: timedelta = SOON) -> Call:
    not_before = engine.clock.now() + after
    return make_call(
        phase=CallPhase.SCHEDULED, not_before=not_before, deadline_at=not_before.replace(year=not_before.year + 1)
    )


async def test_a_scheduled_call_runs_at_its_time_without_a_poll(engine: Engine) -> None:
    later, soon = make_scheduled_call(engine, after=timedelta(hours=1)), make_scheduled_call(engine)
    async with engine.running_runner(ScriptedUpstreams(), **NO_POLLING):
        await engine.insert_calls(later)
        await engine.insert_calls(soon)  # earlier than the one that the runner waits for
        await engine.wait_until_final(soon)

    ended = await engine.read_call(soon)
    assert ended.dispatched_at is not None
    assert ended.not_before is not None
    assert ended.dispatched_at >= ended.not_before
    assert (await engine.read_call(later)).phase is CallPhase.SCHEDULED


@pytest.mark.requirement("R35")
async def test_a_scheduled_call_survives_the_process_that_stored_it(engine: Engine) -> None:
    call = make_scheduled_call(engine)
    async with engine.running_runner(ScriptedUpstreams(), **NO_POLLING):
        await engine.insert_calls(call)
    await engine.run_recovery()
    assert (await engine.read_call(call)).phase is CallPhase.SCHEDULED

    async with engine.running_runner(ScriptedUpstreams(), **NO_POLLING):
        await engine.wait_until_final(call)

    assert (await engine.read_call(call)).outcome is CallOutcome.RESULT


async def test_a_call_whose_time_came_while_no_process_ran_begins_with_the_next_one(
    engine: Engine, clock: OffsetClock
) -> None:
    call = make_scheduled_call(engine, after=timedelta(hours=1))
    await engine.insert_calls(call)
    clock.advance(3600)

    async with engine.running_runner(ScriptedUpstreams(), **NO_POLLING):
        await engine.wait_until_final(call)


async def test_a_call_that_becomes_due_while_its_upstream_is_busy_waits_in_the_queue(
    engine: Engine, clock: OffsetClock
) -> None:
    call = make_scheduled_call(engine, after=timedelta(hours=1))
    async with engine.running_runner(ScriptedUpstreams(capacity={"git": 0, "time": 1}), **NO_POLLING):
        await engine.insert_calls(call)
        clock.advance(3600)
        await engine.store.write(_notify_runner)
        await wait_until(lambda: _is_queued(engine, call))


async def _notify_runner(tx: Transaction) -> None:
    tx.notify(CALL_QUEUED_TOPIC)


async def _is_queued(engine: Engine, call: Call) -> bool:
    return (await engine.read_call(call)).phase is CallPhase.QUEUED
