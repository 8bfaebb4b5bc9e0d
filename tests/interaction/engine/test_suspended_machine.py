"""The machine is suspended, as laptops are, while calls run: their runner is alive when it wakes up, and so are its leases."""

from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from ringback.domain.call import Call, CallOutcome
from ringback.domain.delivery import DeliveryState
from ringback.domain.scheduling_time import SLEW_DIVISOR
from ringback.domain.suspension import SuspensionWatch
from ringback.janitor import LEASE_GRACE_SECONDS, RESUME_GRACE_SECONDS
from ringback.runner.runner import RunnerConfig
from tests.interaction.engine.test_janitor import dispatched
from tests.support.builders import a_call, a_delivery, a_webhook
from tests.support.calls import calls_of
from tests.support.clock import StandingClock, SteppedClock
from tests.support.engine import LEASE_SECONDS, OWNER, Engine, Holding, ScriptedUpstreams, until
from tests.support.stores import sqlite_store

HOUR: Final = 3600.0
NAP_SECONDS: Final = 600.0
"""Longer than a lease, and shorter than what the call may take."""
HEARTBEAT_SECONDS: Final = RunnerConfig(owner=OWNER).heartbeat_seconds


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
async def engine(tmp_path: Path, clock: StandingClock) -> AsyncGenerator[Engine]:
    async with sqlite_store(tmp_path, clock) as store:
        yield Engine(store, clock)


async def is_prolonged(engine: Engine, before: Call) -> bool:
    return (await engine.call(before)).lease_until != before.lease_until


@pytest.mark.requirement("R35")
async def test_a_running_call_outlives_the_sleep_of_its_machine(engine: Engine, clock: StandingClock) -> None:
    (call,), tool, janitor = calls_of(engine, 1), Holding(), engine.janitor()
    await engine.queue(call)

    async with engine.running(ScriptedUpstreams(tool)):
        await tool.until_inside(1)
        clock.suspend(NAP_SECONDS)
        await janitor.run_once()  # before the runner had a moment to prolong its leases
        for _ in range(round(RESUME_GRACE_SECONDS / HEARTBEAT_SECONDS) + 1):
            before = await engine.call(call)
            assert not before.is_final
            clock.advance(HEARTBEAT_SECONDS)
            await until(partial(is_prolonged, engine, before))
            await janitor.run_once()
        tool.release.set()
        (ended,) = await engine.until_final(call)

    assert (ended.outcome, ended.runs) == (CallOutcome.RESULT, 1)


@pytest.mark.requirement("R33")
async def test_a_call_whose_runner_died_before_the_sleep_is_ended_soon_after_it(
    engine: Engine, clock: StandingClock
) -> None:
    call, janitor = await dispatched(engine, a_call()), engine.janitor()
    for _ in range(3):
        clock.suspend(NAP_SECONDS)
        await janitor.run_once()
        assert not (await engine.call(call)).is_final
        clock.advance(RESUME_GRACE_SECONDS - 1)
        await janitor.run_once()
        assert not (await engine.call(call)).is_final

    clock.advance(1)
    await janitor.run_once()

    assert (await engine.call(call)).outcome is CallOutcome.UNKNOWN


async def test_a_delivery_that_is_being_sent_when_the_machine_wakes_is_not_sent_beside_itself(
    engine: Engine, clock: StandingClock
) -> None:
    webhook = a_webhook()
    delivery = a_delivery(webhook_id=webhook.id)
    await engine.register(webhook)
    await engine.deliver(delivery)
    await engine.store.write(
        lambda tx: tx.delivery_queue.lease_due(
            webhook.id, now=tx.now(), owner=OWNER, token="lease_1", until=tx.now(), limit=1, ordered=False
        )
    )
    janitor = engine.janitor()

    clock.suspend(HOUR)
    await janitor.run_once()
    assert (await engine.delivery(delivery)).state is DeliveryState.LEASED
    clock.advance(RESUME_GRACE_SECONDS)
    await janitor.run_once()
    assert (await engine.delivery(delivery)).state is DeliveryState.PENDING


def test_the_grace_after_a_resume_leaves_time_for_two_heartbeats() -> None:
    assert 2 * HEARTBEAT_SECONDS < RESUME_GRACE_SECONDS
    assert LEASE_SECONDS + LEASE_GRACE_SECONDS > RESUME_GRACE_SECONDS


def test_a_clock_that_is_set_or_slewed_is_no_suspension() -> None:
    clock = SteppedClock()
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
