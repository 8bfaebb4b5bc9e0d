"""The runner extends the leases of running calls, lets others expire, and never trusts a lease to its end."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from ringback.domain.call import Call, CallStatus, RerunPolicy
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.domain.clock import seconds
from ringback.domain.ports import Transaction
from ringback.notifier.call_ends import LeasedCompletion
from ringback.notifier.recorder import Recorder
from ringback.runner import runner
from ringback.runner.leasing import RunnerConfig
from tests.support.calls import make_calls
from tests.support.clock import ManualClock, OffsetClock
from tests.support.engine import WAIT_SECONDS, BlockingTool, Engine, OnProgress, ScriptedUpstreams, wait_until
from tests.support.executions import is_extended, replace_lease
from tests.support.stored_work import COMPLETED_RESULT, LEASE_SECONDS, OWNER
from tests.support.stores import FOREVER, FailingStore, StoreWrapper

QUICK = {"heartbeat_seconds": 0.01}
HEARTBEAT_SECONDS = RunnerConfig(owner=OWNER).heartbeat_seconds


# -- leases -----------------------------------------------------------------------------------------------------------------


async def test_the_heartbeat_extends_the_leases_of_running_calls(engine: Engine) -> None:
    (call,), tool = make_calls(engine, 1), BlockingTool()
    await engine.insert_calls(call)

    async with engine.running_runner(ScriptedUpstreams(tool), **QUICK):
        await tool.wait_until_inside(1)
        first = await engine.read_call(call)

        async def prolonged() -> bool:
            return (await engine.read_call(call)).lease_until != first.lease_until

        await wait_until(prolonged)
        tool.release.set()


async def test_an_execution_that_lost_its_lease_cancels_upstream_and_the_runner_goes_on(engine: Engine) -> None:
    (call, other), tool = make_calls(engine, 2), BlockingTool()
    await engine.insert_calls(call, other)

    async with engine.running_runner(ScriptedUpstreams(tool), **QUICK):
        await tool.wait_until_inside(2)
        await replace_lease(engine, call)
        await tool.wait_until_cancelled(1)
        tool.release.set()
        await engine.wait_until_final(other)

    assert [each.id for each in tool.cancelled] == [call.id]
    assert (await engine.read_call(call)).lease_token == "lease_of_another"


@pytest.mark.requirement("R35")
async def test_a_call_leased_again_while_its_first_execution_waits_for_the_store_keeps_the_others_running(
    engine: Engine, unsteady: FailingStore, clock: OffsetClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk was full for longer than the lease, and the janitor comes before the next attempt to write the end."""
    (again,) = make_calls(engine, 1, rerun_policy=RerunPolicy.ALWAYS, rerun_allowed=True)
    others, tool = make_calls(engine, 3), BlockingTool()
    await engine.insert_calls(again)

    async with engine.running_runner(ScriptedUpstreams(tool), poll_seconds=3600.0):
        await tool.wait_until_inside(1)
        unsteady.refusals = FOREVER
        tool.release.set()
        await tool.wait_until_inside(0)
        tool.release.clear()
        await wait_until(partial(has_logged, caplog, "call.not_recorded"))
        clock.advance(60)
        unsteady.refusals = 0
        await engine.make_janitor().run_once()
        await tool.wait_until_inside(1)
        await engine.insert_calls(*others)
        await tool.wait_until_inside(4)
        tool.release.set()
        ended = await engine.wait_until_final(again, *others)

    assert {call.outcome for call in ended} == {CallOutcome.RESULT}


class FailingRecorder(Recorder):
    """A recorder that has a bug with one call."""

    unlucky: Call

    async def finish_leased_calls(
        self, tx: Transaction, completions: Sequence[LeasedCompletion]
    ) -> Sequence[Call | None]:
        if self.unlucky.id in {each.call_id for each in completions}:
            raise ZeroDivisionError
        return await super().finish_leased_calls(tx, completions)


@pytest.mark.requirement("R33")
async def test_the_lease_of_an_abandoned_call_expires(engine: Engine) -> None:
    """Whatever went wrong with it, and however busy the runner is, the janitor must be able to end it."""
    (unlucky, busy), tool = make_calls(engine, 2), BlockingTool()

    async def run_tool(call: Call, on_progress: OnProgress) -> CallCompletion:
        return COMPLETED_RESULT if call.id == unlucky.id else await tool(call, on_progress)

    await engine.insert_calls(unlucky, busy)
    stop = asyncio.Event()
    recorder = engine.make_recorder(FailingRecorder)
    recorder.unlucky = unlucky
    failing = engine.make_runner(ScriptedUpstreams(run_tool), recorder=recorder, **QUICK)
    work = asyncio.create_task(failing.run(stop))
    await tool.wait_until_inside(1)

    async def left_behind() -> bool:
        prolonged, left_alone = (
            (await engine.read_call(busy)).lease_until,
            (await engine.read_call(unlucky)).lease_until,
        )
        assert prolonged is not None
        assert left_alone is not None
        return prolonged > left_alone + seconds(0.1)

    await wait_until(left_behind)
    tool.release.set()
    stop.set()
    await asyncio.wait_for(work, WAIT_SECONDS)
    assert (await engine.read_call(busy)).outcome is CallOutcome.RESULT


async def test_a_bug_in_one_execution_does_not_affect_the_others(engine: Engine) -> None:
    unlucky, *others = make_calls(engine, 10)

    async def stumble(call: Call, on_progress: OnProgress) -> CallCompletion:
        if call.id == unlucky.id:
            raise ZeroDivisionError
        return COMPLETED_RESULT

    await engine.insert_calls(unlucky, *others)
    async with engine.running_runner(ScriptedUpstreams(stumble)):
        ended = await engine.wait_until_final(unlucky, *others)

    assert [call.outcome for call in ended] == [CallOutcome.UNKNOWN] + [CallOutcome.RESULT] * 9


class BreakableUpstreams(ScriptedUpstreams):
    """Upstreams that have a bug while they are broken."""

    broken = False

    def get_capacity(self) -> Mapping[str, int]:
        if self.broken:
            raise ZeroDivisionError
        return super().get_capacity()


@pytest.mark.requirement("R35")
async def test_a_restarted_runner_runs_no_call_twice(engine: Engine) -> None:
    (cut, next_one), tool = make_calls(engine, 2), BlockingTool()
    upstreams = BreakableUpstreams(tool)
    restarted, stop = engine.make_runner(upstreams), asyncio.Event()
    await engine.insert_calls(cut)

    first = asyncio.create_task(restarted.run(stop))
    await tool.wait_until_inside(1)
    upstreams.broken = True
    await engine.insert_calls(next_one)
    with pytest.raises(ExceptionGroup):
        await asyncio.wait_for(first, WAIT_SECONDS)
    await tool.wait_until_cancelled(1)

    upstreams.broken = False
    tool.release.set()
    second = asyncio.create_task(restarted.run(stop))
    await engine.wait_until_final(next_one)
    stop.set()
    await asyncio.wait_for(second, WAIT_SECONDS)

    assert [call.id for call in upstreams.called] == [cut.id, next_one.id]
    assert (await engine.read_call(cut)).status is CallStatus.WORKING


def test_a_lease_survives_a_missed_heartbeat() -> None:
    with pytest.raises(ValueError, match="lease_seconds must be at least twice heartbeat_seconds"):
        RunnerConfig(owner=OWNER, lease_seconds=10, heartbeat_seconds=6)


# -- trust ------------------------------------------------------------------------------------------------------------------


def test_a_lease_is_not_trusted_to_its_end() -> None:
    config = RunnerConfig(owner=OWNER)

    assert config.trust_window_seconds == config.lease_seconds - config.lease_margin_seconds


@pytest.mark.requirement("R34")
async def test_calls_go_on_while_the_store_is_away_for_longer_than_their_leases(
    engine: Engine, unsteady: FailingStore
) -> None:
    calls, tool, clock = make_calls(engine, 2), BlockingTool(), ManualClock()
    await engine.insert_calls(*calls)

    async with Engine(engine.store, clock).running_runner(ScriptedUpstreams(tool), poll_seconds=3600.0):
        await tool.wait_until_inside(2)
        before = [await engine.read_call(call) for call in calls]
        unsteady.refusals = FOREVER
        for failures in range(1, 7):
            clock.advance(HEARTBEAT_SECONDS)
            await wait_until(partial(has_refused, unsteady, failures))
        assert [await engine.read_call(call) for call in calls] == before
        unsteady.refusals = 0
        clock.advance(HEARTBEAT_SECONDS)
        await wait_until(partial(is_extended, engine, before[0]))
        tool.release.set()
        ended = await engine.wait_until_final(*calls)

    assert ({call.outcome for call in ended}, tool.cancelled) == ({CallOutcome.RESULT}, [])


@pytest.mark.requirement("R35")
async def test_a_call_that_another_runner_took_while_the_store_was_away_is_left_to_it(
    engine: Engine, unsteady: FailingStore
) -> None:
    (call,), tool, clock = make_calls(engine, 1), BlockingTool(), ManualClock()
    await engine.insert_calls(call)

    async with Engine(engine.store, clock).running_runner(ScriptedUpstreams(tool), poll_seconds=3600.0):
        await tool.wait_until_inside(1)
        unsteady.refusals = FOREVER
        clock.advance(LEASE_SECONDS)
        await wait_until(partial(has_refused, unsteady, 1))
        unsteady.refusals = 0
        taken = await replace_lease(engine, call)
        clock.advance(HEARTBEAT_SECONDS)
        await tool.wait_until_cancelled(1)

    assert await engine.read_call(call) == taken


class StalledStore(StoreWrapper):
    """A store whose commits take for ever while a test says so."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.stalled = False

    async def write(self, work: Callable[[Transaction], Awaitable[Any]]) -> Any:
        if self.stalled:
            await asyncio.Event().wait()
        return await super().write(work)


@pytest.mark.requirement("R35")
async def test_a_heartbeat_that_hangs_is_repeated(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (call,), tool, store, clock = make_calls(engine, 1), BlockingTool(), StalledStore(engine.store), ManualClock()
    await engine.insert_calls(call)

    async with Engine(store, clock).running_runner(ScriptedUpstreams(tool), poll_seconds=3600.0):
        await tool.wait_until_inside(1)
        before = await engine.read_call(call)
        store.stalled = True
        with monkeypatch.context() as patched:
            patched.setattr(runner, "EXTEND_SECONDS_MAX", 0.01)
            clock.advance(LEASE_SECONDS)
            await wait_until(partial(has_logged, caplog, "leases.not_extended"))
        store.stalled = False
        clock.advance(HEARTBEAT_SECONDS)
        await wait_until(partial(is_extended, engine, before))
        tool.release.set()
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, tool.cancelled) == (CallOutcome.RESULT, [])


async def test_a_runner_that_resumes_after_its_lease_was_replaced_changes_nothing(engine: Engine) -> None:
    """As after SIGSTOP and SIGCONT: the next holder's row stays as it is, whatever the first one saw meanwhile."""
    (call,), tool = make_calls(engine, 1), BlockingTool()
    await engine.insert_calls(call)

    async with engine.running_runner(ScriptedUpstreams(tool), heartbeat_seconds=10.0):
        await tool.wait_until_inside(1)
        taken = await replace_lease(engine, call)
        tool.release.set()
        await wait_until(partial(is_unheld, tool))

    assert await engine.read_call(call) == taken
    assert await engine.read_events() == []


async def has_logged(caplog: pytest.LogCaptureFixture, event: str) -> bool:
    return event in caplog.messages


async def has_refused(store: FailingStore, times: int) -> bool:
    return store.refused >= times


async def is_unheld(tool: BlockingTool) -> bool:
    return not tool.inside
