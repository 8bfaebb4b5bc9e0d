"""A call whose upstream has capacity is leased in the transaction that inserts it, by the same rules as any other."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from ringback.domain.call import Call, CallPhase
from ringback.domain.ports import Transaction
from ringback.domain.signals import CALL_QUEUED_TOPIC
from ringback.post_commit import CallLeases
from ringback.runner.leasing import PossibleCallers
from tests.interaction.engine.test_dispatched_by_lease import granting_leases
from tests.support.builders import make_call
from tests.support.counting_store import CommitCountingStore
from tests.support.engine import BlockingTool, Engine, ScriptedUpstreams
from tests.support.examples import ALICE, BOB
from tests.support.stored_work import OWNER

FAR_DEADLINE = {"poll_seconds": 3600.0}
"""Polling never helps: each call must be leased at its start or by a notification."""


async def start(
    engine: Engine, *calls: Call, fails: bool = False, leases: CallLeases | None = None, may_dispatch: bool = False
) -> list[Call]:
    """Start calls as the service does, all in one transaction. Return the rows as they are inserted."""
    prepare_leases = engine.call_handoff.consumer
    leases = leases or (prepare_leases() if prepare_leases is not None else None)

    async def insert(tx: Transaction) -> list[Call]:
        rows: list[Call] = []
        for call in calls:
            leased = await leases.lease_new(tx, call, may_dispatch=may_dispatch) if leases is not None else None
            await tx.calls.insert(leased or call)
            rows.append(leased or call)
            if leased is None and not (
                leases is not None and call.id in {each.id for each in await leases.lease_queued(tx, call.upstream)}
            ):
                tx.notify(CALL_QUEUED_TOPIC)
        if fails:
            raise ZeroDivisionError
        return rows

    return await engine.store.write(insert)


def make_calls(engine: Engine, count: int, **over: Any) -> list[Call]:
    return [make_call(deadline_at=engine.clock.now().replace(year=2100), **over) for _ in range(count)]


async def test_a_call_is_leased_when_its_start_returns_and_not_yet_dispatched(engine: Engine) -> None:
    (call,), upstreams = make_calls(engine, 1), ScriptedUpstreams()
    async with granting_leases(engine, upstreams):
        (leased,) = await start(engine, call)

        assert (leased.phase, leased.lease_owner, leased.dispatched_at) == (CallPhase.RUNNING, OWNER, None)
        await engine.wait_until_final(call)

    assert [each.id for each in upstreams.called] == [call.id]


async def test_a_call_leased_at_commit_needs_no_lease_transaction(
    engine: Engine,
) -> None:
    first, second = make_calls(engine, 2)
    async with granting_leases(engine, ScriptedUpstreams()):
        counting = engine.store
        assert isinstance(counting, CommitCountingStore)
        counting.written.clear()
        for call in (first, second):
            await start(engine, call)
            await engine.wait_until_final(call)

    assert counting.written == ["start", "LeasedCall._write_dispatched", "CompletionBatcher._record_completions"] * 2


async def test_calls_are_queued_while_no_runner_runs(engine: Engine) -> None:
    before, after = make_calls(engine, 2)
    await start(engine, before)
    async with engine.running_runner(ScriptedUpstreams(), **FAR_DEADLINE):
        await engine.wait_until_final(before)

    await start(engine, after)

    assert (await engine.read_call(after)).phase is CallPhase.QUEUED


@pytest.mark.requirement("R35")
async def test_a_start_that_is_rolled_back_runs_nothing_and_holds_no_capacity(engine: Engine) -> None:
    (call,), upstreams = make_calls(engine, 1), ScriptedUpstreams(capacity={"git": 1})
    async with granting_leases(engine, upstreams):
        for undone in make_calls(engine, 3):
            with pytest.raises(ZeroDivisionError):
                await start(engine, undone, fails=True)
        await start(engine, call)
        await engine.wait_until_final(call)

    assert [each.id for each in upstreams.called] == [call.id]


async def test_concurrent_starts_never_exceed_the_capacity_of_the_upstream(engine: Engine) -> None:
    calls, tool = make_calls(engine, 10), BlockingTool()
    async with granting_leases(
        engine, ScriptedUpstreams(tool, capacity={"git": 3}), possible_callers=PossibleCallers.ONE
    ):
        await start(engine, *calls[:2])
        await asyncio.gather(*(start(engine, call) for call in calls[2:]))
        await tool.wait_until_inside(3)

        first, second, *others = [(await engine.read_call(call)).phase for call in calls]
        assert (first, second) == (CallPhase.RUNNING, CallPhase.RUNNING)
        assert Counter(others) == {CallPhase.RUNNING: 1, CallPhase.QUEUED: 7}  # their transactions end in any order
        tool.release.set()
        await engine.wait_until_final(*calls)

    assert tool.inside_max == 3


@pytest.mark.requirement("R11")
async def test_a_start_leases_the_call_that_waited_longest(engine: Engine) -> None:
    old, new = make_calls(engine, 2)
    upstreams = ScriptedUpstreams(capacity={"git": 1})
    async with granting_leases(engine, upstreams):
        await engine.store.write(lambda tx: tx.calls.insert(old))  # without a notification
        await start(engine, new)
        await engine.wait_until_final(old, new)

    assert [each.id for each in upstreams.called] == [old.id, new.id]


@pytest.mark.requirement("R11")
async def test_principals_take_turns_also_when_one_call_was_leased_at_commit(engine: Engine) -> None:
    tool = BlockingTool()
    upstreams = ScriptedUpstreams(tool, capacity={"git": 1})
    alices, bobs = make_calls(engine, 3, principal=ALICE), make_calls(engine, 1, principal=BOB)
    async with engine.running_runner(upstreams, **FAR_DEADLINE):
        await asyncio.sleep(0)
        for call in (*alices, *bobs):
            await start(engine, call)
        await tool.wait_until_inside(1)
        tool.release.set()
        await engine.wait_until_final(*alices, *bobs)

    assert [call.principal for call in upstreams.called] == [ALICE, BOB, ALICE, ALICE]


@pytest.mark.requirement("R35")
async def test_a_call_leased_after_the_runner_stopped_is_queued_again(engine: Engine) -> None:
    (call,), upstreams = make_calls(engine, 1), ScriptedUpstreams(capacity={"git": 1})
    async with granting_leases(engine, upstreams):
        assert engine.call_handoff.consumer is not None
        late = engine.call_handoff.consumer()

    await start(engine, call, leases=late)
    assert (await engine.read_call(call)).phase is CallPhase.RUNNING
    await engine.run_recovery()

    async with engine.running_runner(upstreams, **FAR_DEADLINE):
        await engine.wait_until_final(call)
    assert [each.id for each in upstreams.called] == [call.id]
