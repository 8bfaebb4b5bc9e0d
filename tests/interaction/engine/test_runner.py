"""The runner: many calls at once, each upstream as much as it takes, each principal its turn, and an orderly end."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from ringback.domain.call import Call, Ending, Outcome, Phase, Status
from ringback.domain.clock import seconds
from ringback.domain.ports import Transaction, cancelling
from ringback.notifier.record import Recorder
from ringback.runner.runner import RunnerConfig
from tests.support.builders import a_call
from tests.support.engine import (
    DONE,
    OWNER,
    WAIT_SECONDS,
    Engine,
    Holding,
    OnProgress,
    ScriptedUpstreams,
    UnsteadyStore,
    until,
)
from tests.support.examples import ALICE, BOB
from tests.support.upstreams import Stage, http_config, opened, serving

MANY = 300
"""Calls at once on one upstream: three times the pool of the SDK's own HTTP client."""
QUICK = {"heartbeat_seconds": 0.01}


def calls_of(engine: Engine, count: int, **over: Any) -> list[Call]:
    return [a_call(deadline_at=engine.clock.now().replace(year=2100), **over) for _ in range(count)]


# -- how many at once, and who is next --------------------------------------------------------------------------------------


async def test_an_upstream_gets_as_many_calls_at_once_as_it_takes(engine: Engine) -> None:
    calls, tool = calls_of(engine, 7), Holding()
    await engine.queue(*calls)

    async with engine.running(ScriptedUpstreams(tool, capacity={"git": 3})):
        await tool.until_inside(3)
        queued = [call for call in [await engine.call(call) for call in calls] if call.dispatched_at is None]
        tool.release.set()
        await engine.until_final(*calls)

    assert [call.lease_token for call in queued] == [None] * 4
    assert tool.inside_max == 3


async def test_each_upstream_has_room_of_its_own(engine: Engine) -> None:
    tool = Holding()
    await engine.queue(*calls_of(engine, 5, upstream="git"), *calls_of(engine, 5, upstream="time"))

    async with engine.running(ScriptedUpstreams(tool, capacity={"git": 1, "time": 2})):
        await tool.until_inside(3)
        assert sorted(call.upstream for call in tool.inside) == ["git", "time", "time"]
        tool.release.set()


@pytest.mark.requirement("R11")
async def test_principals_take_turns_on_a_busy_upstream(engine: Engine) -> None:
    calls = [*calls_of(engine, 6, principal=ALICE), *calls_of(engine, 2, principal=BOB)]
    upstreams = ScriptedUpstreams(capacity={"git": 1})
    await engine.queue(*calls)

    async with engine.running(upstreams):
        await engine.until_final(*calls)

    assert [call.principal for call in upstreams.called] == [ALICE, BOB, ALICE, BOB, ALICE, ALICE, ALICE, ALICE]


@pytest.mark.requirement("R28")
async def test_hundreds_of_calls_to_one_upstream_are_inside_at_once(engine: Engine) -> None:
    stage, calls = Stage(), calls_of(engine, MANY, upstream="stage", tool="hold", arguments={})
    await engine.queue(*calls)

    async with serving(stage.app()) as server:
        config = replace(http_config(server.url), max_concurrent=MANY)
        async with opened(config) as upstreams, engine.running(upstreams):
            await asyncio.wait_for(stage.until_inside(MANY), 3 * WAIT_SECONDS)
            stage.release.set()
            ended = await engine.until_final(*calls)

    assert {call.outcome for call in ended} == {Outcome.RESULT}
    assert len(stage.calls) == MANY


@pytest.mark.requirement("R11")
async def test_an_upstream_that_is_away_does_not_hold_up_the_others(engine: Engine) -> None:
    waiting, served = calls_of(engine, 20, upstream="away"), calls_of(engine, 20, upstream="git")
    await engine.queue(*waiting, *served)

    async with engine.running(ScriptedUpstreams(capacity={"away": 4, "git": 4}, away=frozenset({"away"}))):
        ended = await engine.until_final(*served)

    assert {call.outcome for call in ended} == {Outcome.RESULT}
    left = [await engine.call(call) for call in waiting]
    assert {(call.status, call.dispatched_at, call.lease_token) for call in left} == {(Status.WORKING, None, None)}


async def test_a_call_that_is_queued_later_is_begun_at_once(engine: Engine) -> None:
    (call,) = calls_of(engine, 1)

    async with engine.running(ScriptedUpstreams(), poll_seconds=3600.0):
        await engine.queue(call)
        (ended,) = await engine.until_final(call)

    assert ended.outcome is Outcome.RESULT


async def test_a_store_that_cannot_be_written_for_a_while_holds_calls_up_and_loses_none(
    engine: Engine, unsteady: UnsteadyStore
) -> None:
    calls = calls_of(engine, 5)
    await engine.queue(*calls)
    unsteady.refusals = 3

    async with engine.running(ScriptedUpstreams(), poll_seconds=0.01):
        ended = await engine.until_final(*calls)

    assert {call.outcome for call in ended} == {Outcome.RESULT}


# -- cancelling -------------------------------------------------------------------------------------------------------------


async def test_a_storm_of_cancellations_calls_every_one_of_them_off(engine: Engine) -> None:
    stage, calls = Stage(), calls_of(engine, 60, upstream="stage", tool="hold", arguments={})
    await engine.queue(*calls)

    async def cancel(call: Call) -> None:
        async def ask(tx: Transaction) -> None:
            running = await tx.calls.get(call.id)
            assert running is not None
            await tx.calls.update(replace(running, cancel_requested=True), expected=running.status, lease_token=None)
            tx.ring(cancelling(call.id))

        await engine.store.write(ask)

    async with serving(stage.app()) as server, opened(http_config(server.url)) as upstreams:
        async with engine.running(upstreams):
            await asyncio.wait_for(stage.until_inside(len(calls)), WAIT_SECONDS)
            await asyncio.gather(*map(cancel, calls))
            ended = await engine.until_final(*calls)
        await until(partial(nobody_inside, stage))

    assert {call.outcome for call in ended} == {Outcome.CANCELLED}


async def nobody_inside(stage: Stage) -> bool:
    return stage.inside == 0


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
        taken = replace(await engine.call(call), lease_owner="runner-2", lease_token="lease_of_another")
        await engine.store.write(lambda tx: tx.calls.update(taken, expected=taken.status, lease_token=None))
        await tool.until_called_off(1)
        tool.release.set()
        await engine.until_final(other)

    assert [each.id for each in tool.called_off] == [call.id]
    assert (await engine.call(call)).lease_token == "lease_of_another"


class Stumbling(Recorder):
    """A recorder that has a bug with one call."""

    def __init__(self, recorder: Recorder, unlucky: Call) -> None:
        self._recorder = recorder
        self._unlucky = unlucky

    async def finish(self, tx: Transaction, call: Call, ending: Ending, *, lease_token: str | None) -> Call | None:
        if call.id == self._unlucky.id:
            raise ZeroDivisionError
        return await self._recorder.finish(tx, call, ending, lease_token=lease_token)


@pytest.mark.requirement("R33")
async def test_the_lease_of_a_call_that_nobody_drives_any_more_runs_out(engine: Engine) -> None:
    """Whatever went wrong with it, and however busy the runner is, the janitor must be able to end it."""
    (unlucky, busy), tool = calls_of(engine, 2), Holding()

    async def drive(call: Call, on_progress: OnProgress) -> Ending:
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

    async def stumble(call: Call, on_progress: OnProgress) -> Ending:
        if call.id == unlucky.id:
            raise ZeroDivisionError
        return DONE

    await engine.queue(unlucky, *others)
    async with engine.running(ScriptedUpstreams(stumble)):
        ended = await engine.until_final(unlucky, *others)

    assert [call.outcome for call in ended] == [Outcome.UNKNOWN] + [Outcome.RESULT] * 9


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
    assert (await engine.call(cut)).status is Status.WORKING


def test_a_lease_survives_a_missed_heartbeat() -> None:
    with pytest.raises(ValueError, match="lease_seconds must be at least twice heartbeat_seconds"):
        RunnerConfig(owner=OWNER, lease_seconds=10, heartbeat_seconds=6)


# -- stopping ---------------------------------------------------------------------------------------------------------------


async def test_a_stopped_runner_waits_for_what_runs_and_begins_nothing(engine: Engine) -> None:
    (running, queued), tool = calls_of(engine, 2), Holding()
    await engine.queue(running)

    async with engine.running(ScriptedUpstreams(tool)) as stop:
        await tool.until_inside(1)
        stop.set()
        await engine.queue(queued)
        tool.release.set()

    assert (await engine.call(running)).outcome is Outcome.RESULT
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
    assert (await engine.call(running)).outcome is Outcome.UNKNOWN
    assert (await engine.call(waiting)).lease_token is None


async def test_the_next_runner_takes_up_what_was_handed_back(engine: Engine) -> None:
    (call,) = calls_of(engine, 1)
    await engine.queue(call)
    away = ScriptedUpstreams(away=frozenset({"git"}))

    async with engine.running(away):
        await asyncio.wait_for(away.wanted.wait(), WAIT_SECONDS)
    async with engine.running(ScriptedUpstreams()):
        (ended,) = await engine.until_final(call)

    assert (ended.outcome, ended.runs) == (Outcome.RESULT, 1)


# -- trust ------------------------------------------------------------------------------------------------------------------


def test_a_lease_is_not_trusted_to_its_end() -> None:
    config = RunnerConfig(owner=OWNER)

    assert config.trust_seconds == config.lease_seconds - config.margin_seconds


@pytest.mark.requirement("R35")
async def test_a_runner_that_cannot_prolong_its_leases_stops_its_drives_and_writes_nothing(
    engine: Engine, unsteady: UnsteadyStore
) -> None:
    calls, tool = calls_of(engine, 2), Holding()
    await engine.queue(*calls)

    async with engine.running(ScriptedUpstreams(tool), lease_seconds=0.3, margin_seconds=0.1, heartbeat_seconds=0.05):
        await tool.until_inside(2)
        before = [await engine.call(call) for call in calls]
        unsteady.refusals = MANY
        await tool.until_called_off(2)
        unsteady.refusals = 0

    after = [await engine.call(call) for call in calls]
    assert [replace(call, lease_until=None) for call in after] == [replace(call, lease_until=None) for call in before]
    assert await engine.events() == []


class Stalled(UnsteadyStore):
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
    (call,), tool, store = calls_of(engine, 1), Holding(), Stalled(engine.store)
    await engine.queue(call)

    stalled = Engine(store, engine.clock)
    async with stalled.running(ScriptedUpstreams(tool), lease_seconds=0.3, margin_seconds=0.1, heartbeat_seconds=0.05):
        await tool.until_inside(1)
        store.stalled = True
        await tool.until_called_off(1)
        store.stalled = False

    assert (await engine.call(call)).phase is Phase.RUNNING


async def test_a_runner_that_comes_to_itself_after_its_lease_was_given_away_changes_nothing(engine: Engine) -> None:
    """As after SIGSTOP and SIGCONT: the next holder's row stays as it is, whatever the first one saw meanwhile."""
    (call,), tool = calls_of(engine, 1), Holding()
    await engine.queue(call)

    async with engine.running(ScriptedUpstreams(tool), heartbeat_seconds=10.0):
        await tool.until_inside(1)
        taken = replace(await engine.call(call), lease_owner="runner-2", lease_token="lease_of_another")
        await engine.store.write(lambda tx: tx.calls.update(taken, expected=taken.status, lease_token=None))
        tool.release.set()
        await until(partial(nobody_holds, tool))

    assert await engine.call(call) == taken
    assert await engine.events() == []


async def nobody_holds(tool: Holding) -> bool:
    return not tool.inside
