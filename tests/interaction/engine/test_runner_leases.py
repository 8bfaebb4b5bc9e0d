"""Leases of running calls: prolonged while they are driven, let go when they are not, and never trusted to their end."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from ringback.domain.call import Call, CallCompletion, CallOutcome, CallPhase, RerunPolicy, CallStatus
from ringback.domain.clock import seconds
from ringback.domain.ports import Transaction
from ringback.notifier.record import Recorder
from ringback.runner.runner import RunnerConfig
from tests.support.calls import calls_of
from tests.support.clock import ShiftedClock, StandingClock
from tests.support.driving import take_lease
from tests.support.engine import (
    DONE,
    LEASE_SECONDS,
    OWNER,
    WAIT_SECONDS,
    Engine,
    Holding,
    OnProgress,
    ScriptedUpstreams,
    until,
)
from tests.support.stores import FOREVER, StoreAround, UnsteadyStore

QUICK = {"heartbeat_seconds": 0.01}


# -- leases -----------------------------------------------------------------------------------------------------------------


async def test_the_heartbeat_prolongs_the_leases_of_running_calls(engine: Engine) -> None:
    (call,), tool = calls_of(engine, 1), Holding()
    await engine.queue(call)

    async with engine.running(ScriptedUpstreams(tool), **QUICK):
        await tool.until_inside(1)
        first = await engine.call(call)

        async def prolonged() -> bool:
            return (await engine.call(call)).lease_until != first.lease_until

        await until(prolonged)
        tool.release.set()


async def test_a_drive_whose_lease_is_gone_calls_the_upstream_off_and_the_runner_goes_on(engine: Engine) -> None:
    (call, other), tool = calls_of(engine, 2), Holding()
    await engine.queue(call, other)

    async with engine.running(ScriptedUpstreams(tool), **QUICK):
        await tool.until_inside(2)
        await take_lease(engine, call)
        await tool.until_called_off(1)
        tool.release.set()
        await engine.until_final(other)

    assert [each.id for each in tool.called_off] == [call.id]
    assert (await engine.call(call)).lease_token == "lease_of_another"


@pytest.mark.requirement("R35")
async def test_a_call_that_is_leased_again_while_its_first_drive_waits_for_the_store_takes_nobody_along(
    engine: Engine, unsteady: UnsteadyStore, clock: ShiftedClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk was full for longer than the lease, and the janitor comes before the next attempt to write the end."""
    (again,) = calls_of(engine, 1, rerun_policy=RerunPolicy.ALWAYS, rerun_allowed=True)
    others, tool = calls_of(engine, 3), Holding()
    await engine.queue(again)

    async with engine.running(ScriptedUpstreams(tool), poll_seconds=3600.0):
        await tool.until_inside(1)
        unsteady.refusals = FOREVER
        tool.release.set()
        await tool.until_inside(0)
        tool.release.clear()
        await until(partial(has_logged, caplog, "call.not_recorded"))
        clock.advance(60)
        unsteady.refusals = 0
        await engine.janitor().run_once()
        await tool.until_inside(1)
        await engine.queue(*others)
        await tool.until_inside(4)
        tool.release.set()
        ended = await engine.until_final(again, *others)

    assert {call.outcome for call in ended} == {CallOutcome.RESULT}


class Stumbling(Recorder):
    """A recorder that has a bug with one call."""

    def __init__(self, recorder: Recorder, unlucky: Call) -> None:
        self._recorder = recorder
        self._unlucky = unlucky

    async def finish(self, tx: Transaction, call: Call, ending: CallCompletion, *, lease_token: str | None) -> Call | None:
        if call.id == self._unlucky.id:
            raise ZeroDivisionError
        return await self._recorder.finish_call(tx, call, ending, lease_token=lease_token)


@pytest.mark.requirement("R33")
async def test_the_lease_of_a_call_that_nobody_drives_any_more_runs_out(engine: Engine) -> None:
    """Whatever went wrong with it, and however busy the runner is, the janitor must be able to end it."""
    (unlucky, busy), tool = calls_of(engine, 2), Holding()

    async def drive(call: Call, on_progress: OnProgress) -> CallCompletion:
        return DONE if call.id == unlucky.id else await tool(call, on_progress)

    await engine.queue(unlucky, busy)
    stop = asyncio.Event()
    runner = engine.runner(ScriptedUpstreams(drive), recorder=Stumbling(engine.recorder, unlucky), **QUICK)
    work = asyncio.create_task(runner.run(stop))
    await tool.until_inside(1)

    async def left_behind() -> bool:
        prolonged, left_alone = (await engine.call(busy)).lease_until, (await engine.call(unlucky)).lease_until
        assert prolonged is not None
        assert left_alone is not None
        return prolonged > left_alone + seconds(0.1)

    await until(left_behind)
    tool.release.set()
    stop.set()
    await asyncio.wait_for(work, WAIT_SECONDS)


async def test_a_bug_with_one_call_is_no_business_of_the_others(engine: Engine) -> None:
    unlucky, *others = calls_of(engine, 10)

    async def stumble(call: Call, on_progress: OnProgress) -> CallCompletion:
        if call.id == unlucky.id:
            raise ZeroDivisionError
        return DONE

    await engine.queue(unlucky, *others)
    async with engine.running(ScriptedUpstreams(stumble)):
        ended = await engine.until_final(unlucky, *others)

    assert [call.outcome for call in ended] == [CallOutcome.UNKNOWN] + [CallOutcome.RESULT] * 9


class Breakable(ScriptedUpstreams):
    """Upstreams that have a bug while they are broken."""

    broken = False

    def capacity(self) -> Mapping[str, int]:
        if self.broken:
            raise ZeroDivisionError
        return super().capacity()


@pytest.mark.requirement("R35")
async def test_a_runner_that_failed_and_is_started_again_runs_nothing_twice(engine: Engine) -> None:
    (cut, next_one), tool = calls_of(engine, 2), Holding()
    upstreams = Breakable(tool)
    runner, stop = engine.runner(upstreams), asyncio.Event()
    await engine.queue(cut)

    first = asyncio.create_task(runner.run(stop))
    await tool.until_inside(1)
    upstreams.broken = True
    await engine.queue(next_one)
    with pytest.raises(ExceptionGroup):
        await asyncio.wait_for(first, WAIT_SECONDS)
    await tool.until_called_off(1)

    upstreams.broken = False
    tool.release.set()
    second = asyncio.create_task(runner.run(stop))
    await engine.until_final(next_one)
    stop.set()
    await asyncio.wait_for(second, WAIT_SECONDS)

    assert [call.id for call in upstreams.called] == [cut.id, next_one.id]
    assert (await engine.call(cut)).status is CallStatus.WORKING


def test_a_lease_survives_a_missed_heartbeat() -> None:
    with pytest.raises(ValueError, match="lease_seconds must be at least twice heartbeat_seconds"):
        RunnerConfig(owner=OWNER, lease_seconds=10, heartbeat_seconds=6)


# -- trust ------------------------------------------------------------------------------------------------------------------


def test_a_lease_is_not_trusted_to_its_end() -> None:
    config = RunnerConfig(owner=OWNER)

    assert config.trust_window_seconds == config.lease_seconds - config.lease_margin_seconds


@pytest.mark.requirement("R35")
async def test_a_runner_that_cannot_prolong_its_leases_stops_its_drives_and_writes_nothing(
    engine: Engine, unsteady: UnsteadyStore
) -> None:
    calls, tool, clock = calls_of(engine, 2), Holding(), StandingClock()
    await engine.queue(*calls)

    async with Engine(engine.store, clock).running(ScriptedUpstreams(tool)):
        await tool.until_inside(2)
        before = [await engine.call(call) for call in calls]
        unsteady.refusals = FOREVER
        clock.advance(LEASE_SECONDS)
        await tool.until_called_off(2)
        unsteady.refusals = 0

    after = [await engine.call(call) for call in calls]
    assert [replace(call, lease_until=None) for call in after] == [replace(call, lease_until=None) for call in before]
    assert await engine.events() == []


class Stalled(StoreAround):
    """A store whose commits take for ever while a test says so."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.stalled = False

    async def write(self, work: Callable[[Transaction], Awaitable[Any]]) -> Any:
        if self.stalled:
            await asyncio.Event().wait()
        return await super().write(work)


@pytest.mark.requirement("R35")
async def test_a_heartbeat_that_never_returns_is_as_bad_as_one_that_fails(engine: Engine) -> None:
    (call,), tool, store, clock = calls_of(engine, 1), Holding(), Stalled(engine.store), StandingClock()
    await engine.queue(call)

    async with Engine(store, clock).running(ScriptedUpstreams(tool)):
        await tool.until_inside(1)
        store.stalled = True
        clock.advance(LEASE_SECONDS)
        await tool.until_called_off(1)
        store.stalled = False

    assert (await engine.call(call)).phase is CallPhase.RUNNING


async def test_a_runner_that_comes_to_itself_after_its_lease_was_given_away_changes_nothing(engine: Engine) -> None:
    """As after SIGSTOP and SIGCONT: the next holder's row stays as it is, whatever the first one saw meanwhile."""
    (call,), tool = calls_of(engine, 1), Holding()
    await engine.queue(call)

    async with engine.running(ScriptedUpstreams(tool), heartbeat_seconds=10.0):
        await tool.until_inside(1)
        taken = await take_lease(engine, call)
        tool.release.set()
        await until(partial(nobody_holds, tool))

    assert await engine.call(call) == taken
    assert await engine.events() == []


async def has_logged(caplog: pytest.LogCaptureFixture, event: str) -> bool:
    return event in caplog.messages


async def nobody_holds(tool: Holding) -> bool:
    return not tool.inside
