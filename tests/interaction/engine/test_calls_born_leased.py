"""A call that is started while its upstream has room is leased in the unit that stores it, by the same rules as any other."""

import asyncio
from typing import Any

import pytest

from ringback.domain.call import Call, CallPhase
from ringback.domain.ports import Transaction
from ringback.domain.signals import CALL_QUEUED_TOPIC
from ringback.services.births import LeaseQueued
from tests.support.builders import a_call
from tests.support.counting import CountingStore
from tests.support.engine import OWNER, Engine, Holding, ScriptedUpstreams
from tests.support.examples import ALICE, BOB

NEVER = {"poll_seconds": 3600.0}
"""Whoever is served was leased at birth, or rung for."""


async def start(engine: Engine, *calls: Call, fails: bool = False, lease: LeaseQueued | None = None) -> None:
    """Start calls as the service does, all in one unit of work."""
    lease = lease or engine.births.prepare_lease()

    async def insert(tx: Transaction) -> None:
        for call in calls:
            leased = await lease.at_birth(tx, call)
            await tx.calls.insert(leased or call)
            if leased is None and call.id not in [leased.id for leased in await lease(tx, call.upstream)]:
                tx.notify(CALL_QUEUED_TOPIC)
        if fails:
            raise ZeroDivisionError

    await engine.store.write(insert)


def calls_of(engine: Engine, count: int, **over: Any) -> list[Call]:
    return [a_call(deadline_at=engine.clock.now().replace(year=2100), **over) for _ in range(count)]


async def taking(engine: Engine) -> None:
    """Until the runner has looked at the queue once, and takes what is born."""
    (first,) = calls_of(engine, 1)
    await engine.queue(first)
    await engine.until_final(first)


async def test_a_call_is_leased_when_its_start_returns_and_not_yet_dispatched(engine: Engine) -> None:
    (call,), upstreams = calls_of(engine, 1), ScriptedUpstreams()
    async with engine.running(upstreams, **NEVER):
        await taking(engine)
        await start(engine, call)

        leased = await engine.call(call)
        assert (leased.phase, leased.lease_owner, leased.dispatched_at) == (CallPhase.RUNNING, OWNER, None)
        await engine.until_final(call)

    assert [each.id for each in upstreams.called][1:] == [call.id]


async def test_for_a_call_that_finds_room_and_leaves_nobody_waiting_the_queue_is_not_looked_at_again(
    engine: Engine,
) -> None:
    counting = engine.store = CountingStore(engine.store)
    first, second = calls_of(engine, 2)
    async with engine.running(ScriptedUpstreams(), **NEVER):
        await taking(engine)
        counting.written.clear()
        for call in (first, second):
            await start(engine, call)
            await engine.until_final(call)

    assert counting.written == ["start", "LeasedCall._dispatch", "Ends._record"] * 2


async def test_while_nobody_runs_calls_they_are_queued(engine: Engine) -> None:
    before, after = calls_of(engine, 2)
    await start(engine, before)
    async with engine.running(ScriptedUpstreams(), **NEVER):
        await engine.until_final(before)

    await start(engine, after)

    assert (await engine.call(after)).phase is CallPhase.QUEUED


@pytest.mark.requirement("R35")
async def test_a_start_that_was_not_committed_runs_nothing_and_takes_nobodys_place(engine: Engine) -> None:
    (call,), upstreams = calls_of(engine, 1), ScriptedUpstreams(capacity={"git": 1})
    async with engine.running(upstreams, **NEVER):
        await taking(engine)
        for undone in calls_of(engine, 3):
            with pytest.raises(ZeroDivisionError):
                await start(engine, undone, fails=True)
        await start(engine, call)
        await engine.until_final(call)

    assert [each.id for each in upstreams.called][1:] == [call.id]


async def test_however_many_are_started_at_once_no_more_run_than_the_upstream_takes(engine: Engine) -> None:
    calls, tool = calls_of(engine, 10), Holding()
    async with engine.running(ScriptedUpstreams(tool, capacity={"git": 3}), **NEVER):
        await start(engine, *calls[:2])
        await asyncio.gather(*(start(engine, call) for call in calls[2:]))
        await tool.until_inside(3)

        phases = [(await engine.call(call)).phase for call in calls]
        assert phases == [CallPhase.RUNNING] * 3 + [CallPhase.QUEUED] * 7
        tool.release.set()
        await engine.until_final(*calls)

    assert tool.inside_max == 3


@pytest.mark.requirement("R11")
async def test_who_waited_longer_is_leased_by_the_start_of_another(engine: Engine) -> None:
    old, new = calls_of(engine, 2)
    upstreams = ScriptedUpstreams(capacity={"git": 1})
    async with engine.running(upstreams, **NEVER):
        await taking(engine)
        await engine.store.write(lambda tx: tx.calls.insert(old))  # nobody was rung for it
        await start(engine, new)
        await engine.until_final(old, new)

    assert [each.id for each in upstreams.called][1:] == [old.id, new.id]


@pytest.mark.requirement("R11")
async def test_principals_take_turns_also_where_one_was_served_at_birth(engine: Engine) -> None:
    tool = Holding()
    upstreams = ScriptedUpstreams(tool, capacity={"git": 1})
    alices, bobs = calls_of(engine, 3, principal=ALICE), calls_of(engine, 1, principal=BOB)
    async with engine.running(upstreams, **NEVER):
        await asyncio.sleep(0)
        for call in (*alices, *bobs):
            await start(engine, call)
        await tool.until_inside(1)
        tool.release.set()
        await engine.until_final(*alices, *bobs)

    assert [call.principal for call in upstreams.called] == [ALICE, BOB, ALICE, ALICE]


@pytest.mark.requirement("R35")
async def test_what_is_leased_just_when_the_runner_has_stopped_is_queued_again(engine: Engine) -> None:
    (call,), upstreams = calls_of(engine, 1), ScriptedUpstreams(capacity={"git": 1})
    async with engine.running(upstreams, **NEVER):
        await taking(engine)
        late = engine.births.prepare_lease()

    await start(engine, call, lease=late)
    assert (await engine.call(call)).phase is CallPhase.RUNNING
    await engine.recover()

    async with engine.running(upstreams, **NEVER):
        await engine.until_final(call)
    assert [each.id for each in upstreams.called][1:] == [call.id]
