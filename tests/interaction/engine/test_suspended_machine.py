"""The machine is suspended, as laptops are, while calls run: their runner is alive when it wakes up, and so are its leases."""

from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from ringback.domain.call import Call
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.clock import SLEW_DIVISOR
from ringback.domain.delivery import DeliveryState
from ringback.domain.suspension import SuspensionWatch
from ringback.janitor.recovery import LEASE_GRACE_SECONDS, RESUME_GRACE_SECONDS
from ringback.runner.leasing import RunnerConfig
from tests.support.builders import make_call, make_delivery, make_webhook
from tests.support.calls import make_calls
from tests.support.clock import ManualClock, WallClockSteps
from tests.support.engine import BlockingTool, Engine, ScriptedUpstreams, insert_dispatched_call, wait_until
from tests.support.stored_work import LEASE_SECONDS, OWNER
from tests.support.stores import open_test_store

HOUR: Final = 3600.0
NAP_SECONDS: Final = 600.0
"""Longer than a lease, and shorter than what the call may take."""
HEARTBEAT_SECONDS: Final = RunnerConfig(owner=OWNER).heartbeat_seconds


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def engine(tmp_path: Path, clock: ManualClock) -> AsyncGenerator[Engine]:
    async with open_test_store(tmp_path, clock) as store:
        yield Engine(store, clock)


async def is_prolonged(engine: Engine, before: Call) -> bool:
    return (await engine.read_call(before)).lease_until != before.lease_until


@pytest.mark.requirement("R35")
async def test_a_running_call_continues_after_the_machine_was_suspended(engine: Engine, clock: ManualClock) -> None:
    (call,), tool, janitor = make_calls(engine, 1), BlockingTool(), engine.make_janitor()
    await engine.insert_calls(call)

    async with engine.running_runner(ScriptedUpstreams(tool)):
        await tool.wait_until_inside(1)
        clock.suspend(NAP_SECONDS)
        await janitor.run_once()  # before the runner had a moment to prolong its leases
        for _ in range(round(RESUME_GRACE_SECONDS / HEARTBEAT_SECONDS) + 1):
            before = await engine.read_call(call)
            assert not before.is_final
            clock.advance(HEARTBEAT_SECONDS)
            await wait_until(partial(is_prolonged, engine, before))
            await janitor.run_once()
        tool.release.set()
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, ended.runs) == (CallOutcome.RESULT, 1)


@pytest.mark.requirement("R33")
async def test_a_call_of_a_dead_runner_ends_soon_after_a_suspension(engine: Engine, clock: ManualClock) -> None:
    call, janitor = await insert_dispatched_call(engine, make_call()), engine.make_janitor()
    for _ in range(3):
        clock.suspend(NAP_SECONDS)
        await janitor.run_once()
        assert not (await engine.read_call(call)).is_final
        clock.advance(RESUME_GRACE_SECONDS - 1)
        await janitor.run_once()
        assert not (await engine.read_call(call)).is_final

    clock.advance(1)
    await janitor.run_once()

    assert (await engine.read_call(call)).outcome is CallOutcome.UNKNOWN


async def test_a_delivery_in_flight_at_resume_is_not_sent_twice(engine: Engine, clock: ManualClock) -> None:
    webhook = make_webhook()
    delivery = make_delivery(webhook_id=webhook.id)
    await engine.insert_webhooks(webhook)
    await engine.insert_deliveries(delivery)
    await engine.store.write(
        lambda tx: tx.delivery_queue.lease_due(
            webhook.id, now=tx.now(), owner=OWNER, token="lease_1", until=tx.now(), limit=1, ordered=False
        )
    )
    janitor = engine.make_janitor()

    clock.suspend(HOUR)
    await janitor.run_once()
    assert (await engine.read_delivery(delivery)).state is DeliveryState.LEASED
    clock.advance(RESUME_GRACE_SECONDS)
    await janitor.run_once()
    assert (await engine.read_delivery(delivery)).state is DeliveryState.PENDING


def test_the_grace_after_a_resume_leaves_time_for_two_heartbeats() -> None:
    assert 2 * HEARTBEAT_SECONDS < RESUME_GRACE_SECONDS
    assert LEASE_SECONDS + LEASE_GRACE_SECONDS > RESUME_GRACE_SECONDS


def test_a_clock_that_is_set_or_slewed_is_no_suspension() -> None:
    clock = WallClockSteps()
    watch = SuspensionWatch(clock)
    for step in (HOUR, -HOUR, 24 * HOUR):
        clock.step(step)
        for _ in range(100):
            clock.pass_time(SLEW_DIVISOR / 2)
            assert watch.has_been_awake(HOUR, now=clock.now())

    clock.suspend(2)
    assert not watch.has_been_awake(10, now=clock.now())
    clock.pass_time(10)
    assert watch.has_been_awake(10, now=clock.now())
