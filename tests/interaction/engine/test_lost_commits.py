"""The connection is lost during the commit of a lease: the rows are leased, and this process does not know it."""

from functools import partial

import pytest

from ringback.domain.call import Call, CallPhase
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.clock import seconds
from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.errors import StoreUnavailable
from ringback.notifier import dispatcher
from ringback.runner.leasing import RunnerConfig
from tests.interaction.engine.test_dispatched_by_lease import granting_leases, start_call
from tests.support.builders import make_call, make_delivery, make_verified_webhook
from tests.support.calls import make_calls
from tests.support.clock import ManualClock, OffsetClock
from tests.support.engine import BlockingTool, Engine, ScriptedUpstreams, running_dispatcher, wait_until
from tests.support.lost_commits import LosingStore
from tests.support.scripted_receiver import ScriptedReceiver
from tests.support.stored_work import OWNER

HEARTBEAT_SECONDS = RunnerConfig(owner=OWNER).heartbeat_seconds
LEASE_UNIT = "_lease_queued_calls"


@pytest.fixture
def losing(engine: Engine) -> LosingStore:
    return LosingStore(engine.store)


async def is_leased(engine: Engine, call: Call) -> bool:
    return (await engine.read_call(call)).phase is CallPhase.RUNNING


@pytest.mark.requirement("R34")
async def test_calls_whose_lease_was_committed_without_an_answer_run_after_a_heartbeat(
    engine: Engine, losing: LosingStore, clock: OffsetClock
) -> None:
    calls, tool, heartbeats = make_calls(engine, 3), BlockingTool(), ManualClock()
    await engine.insert_calls(*calls)
    losing.lose_next_commit(of=LEASE_UNIT)

    async with Engine(losing, heartbeats).running_runner(ScriptedUpstreams(tool), poll_seconds=3600.0):
        await losing.wait_until_lost()
        assert await is_leased(engine, calls[0])
        assert tool.inside == []
        clock.advance(2 * HEARTBEAT_SECONDS)
        heartbeats.advance(2 * HEARTBEAT_SECONDS)
        await tool.wait_until_inside(3)
        tool.release.set()
        ended = await engine.wait_until_final(*calls)

    assert {(call.outcome, call.runs) for call in ended} == {(CallOutcome.RESULT, 1)}


@pytest.mark.requirement("R35")
async def test_a_new_call_that_was_marked_as_dispatched_in_a_lost_commit_is_not_unknown(
    engine: Engine, losing: LosingStore, clock: OffsetClock
) -> None:
    """Nothing was sent, and the process that would have sent it knows that. So the tool runs once."""
    call, tool, heartbeats = make_call(deadline_at=clock.now().replace(year=2100)), BlockingTool(), ManualClock()
    node = Engine(losing, heartbeats)

    async with granting_leases(node, ScriptedUpstreams(tool)):
        losing.lose_next_commit(of="start_call")
        with pytest.raises(StoreUnavailable):
            await start_call(node, call)
        assert (await engine.read_call(call)).dispatched_at is not None
        clock.advance(2 * HEARTBEAT_SECONDS)
        heartbeats.advance(2 * HEARTBEAT_SECONDS)
        await tool.wait_until_inside(1)
        tool.release.set()
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, ended.runs) == (CallOutcome.RESULT, 1)


async def test_leases_of_this_process_that_are_extended_or_younger_than_a_heartbeat_stay(
    engine: Engine, losing: LosingStore
) -> None:
    (lost, running), tool, heartbeats = make_calls(engine, 2), BlockingTool(), ManualClock()
    await engine.insert_calls(lost)
    losing.lose_next_commit(of=LEASE_UNIT)

    async with Engine(losing, heartbeats).running_runner(ScriptedUpstreams(tool), poll_seconds=1.0):
        await losing.wait_until_lost()
        assert await is_leased(engine, lost)
        await engine.insert_calls(running)
        heartbeats.advance(1.0)
        await tool.wait_until_inside(1)
        before = await engine.read_call(lost)
        for _ in range(3):
            heartbeats.advance(HEARTBEAT_SECONDS)
            await engine.read_call(running)

        assert await engine.read_call(lost) == before
        tool.release.set()


async def is_in_state(engine: Engine, delivery: Delivery, state: DeliveryState) -> bool:
    return (await engine.read_delivery(delivery)).state is state


@pytest.mark.requirement("R34")
async def test_deliveries_whose_lease_was_committed_without_an_answer_are_sent_within_seconds(
    engine: Engine, losing: LosingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "RELEASE_UNUSED_SECONDS", 0.01)
    webhook, receiver = make_verified_webhook(), ScriptedReceiver(204)
    await engine.insert_webhooks(webhook)
    now = engine.clock.now()
    delivery = make_delivery(webhook_id=webhook.id, due_at=now, give_up_at=now + seconds(3600))
    await engine.insert_deliveries(delivery)
    losing.lose_next_commit(of="_lease_due")

    async with running_dispatcher(Engine(losing, engine.clock).make_dispatcher(receiver, poll_seconds=0.01)):
        await wait_until(partial(is_in_state, engine, delivery, DeliveryState.DELIVERED))

    assert (await engine.read_delivery(delivery)).attempts == 1
