"""One leased call to its end: whatever happens to it on the way, what is written down is true."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ringback.domain.call import Call, Ending, Handle, Outcome, Phase, Status, failed
from ringback.domain.clock import seconds
from ringback.domain.event import EventName
from ringback.domain.ports import Transaction, cancelling
from ringback.runner import drive as drive_module
from ringback.runner.drive import Drive, Halt, UpstreamUnreachable
from ringback.runner.drivers import CallSession
from tests.support.builders import a_call
from tests.support.engine import (
    DONE,
    RESULT,
    WAIT_SECONDS,
    Engine,
    Holding,
    OnProgress,
    ScriptedUpstreams,
    UnsteadyStore,
)
from tests.support.service import ShiftedClock

SHORT_SECONDS = 0.05


@pytest.fixture
def halt() -> Halt:
    return Halt(stopping=asyncio.Event(), cut=asyncio.Event())


async def a_leased_call(engine: Engine, *, deadline_in: float = 3600.0, **over: Any) -> Call:
    return await engine.lease(a_call(deadline_at=engine.clock.now() + seconds(deadline_in), **over))


@asynccontextmanager
async def driven(drive: Drive) -> AsyncGenerator[None]:
    """The drive under way; left when it has ended."""
    running = asyncio.create_task(drive.run())
    yield
    await asyncio.wait_for(running, WAIT_SECONDS)


async def run(drive: Drive) -> None:
    await asyncio.wait_for(drive.run(), WAIT_SECONDS)


async def ask_to_cancel(engine: Engine, call: Call) -> None:
    async def ask(tx: Transaction) -> None:
        running = await tx.calls.get(call.id)
        assert running is not None
        await tx.calls.update(replace(running, cancel_requested=True), expected=running.status, lease_token=None)
        tx.ring(cancelling(call.id))

    await engine.store.write(ask)


async def take_lease(engine: Engine, call: Call) -> Call:
    """Somebody else has the call from now on, as after a pause that was longer than the lease."""

    async def take(tx: Transaction) -> Call:
        found = await tx.calls.get(call.id)
        assert found is not None
        taken = replace(found, lease_owner="runner-2", lease_token="lease_of_another")
        await tx.calls.update(taken, expected=found.status, lease_token=None)
        return taken

    return await engine.store.write(take)


# -- the end of it ----------------------------------------------------------------------------------------------------------


async def test_a_call_ends_with_what_its_tool_answered(engine: Engine) -> None:
    call = await a_leased_call(engine)

    await run(engine.drive(call, ScriptedUpstreams()))

    ended = await engine.call(call)
    assert (ended.status, ended.outcome, ended.runs) == (Status.COMPLETED, Outcome.RESULT, 1)
    assert (ended.lease_owner, ended.lease_token, ended.lease_until) == (None, None, None)
    assert ended.dispatched_at is not None
    assert await engine.result(call) == RESULT
    assert [event.name for event in await engine.events()] == [EventName.CALL_FINISHED]


async def test_a_call_is_marked_as_dispatched_before_its_upstream_hears_of_it(engine: Engine) -> None:
    call = await a_leased_call(engine)
    stored: list[Call] = []

    async def look(driven_call: Call, on_progress: OnProgress) -> Ending:
        stored.append(await engine.call(call))
        return DONE

    await run(engine.drive(call, ScriptedUpstreams(look)))

    assert stored[0].dispatched_at is not None
    assert stored[0].runs == 1


class Broken(ScriptedUpstreams):
    """Upstreams where asking for a session fails."""

    def __init__(self, problem: Exception) -> None:
        super().__init__()
        self._problem = problem

    @asynccontextmanager
    async def session(self, call: Call) -> AsyncGenerator[CallSession]:  # noqa: ARG002 - a Sessions' name
        raise self._problem
        yield self


@pytest.mark.requirement("R33")
async def test_a_call_whose_upstream_stays_away_was_never_dispatched_and_says_so(engine: Engine) -> None:
    call = await a_leased_call(engine)

    await run(engine.drive(call, Broken(UpstreamUnreachable("cannot connect, for 30 s."))))

    ended = await engine.call(call)
    assert (ended.outcome, ended.dispatched_at, ended.runs) == (Outcome.REJECTED, None, 0)
    assert (ended.error or {})["message"] == "Upstream 'git' could not be reached: cannot connect, for 30 s."


@pytest.mark.requirement("R33")
async def test_a_bug_while_the_tool_runs_leaves_the_call_unknown(engine: Engine) -> None:
    call = await a_leased_call(engine)

    async def stumble(driven_call: Call, on_progress: OnProgress) -> Ending:
        raise ZeroDivisionError

    await run(engine.drive(call, ScriptedUpstreams(stumble)))

    assert (await engine.call(call)).outcome is Outcome.UNKNOWN


async def test_a_driver_that_gives_up_by_itself_leaves_the_call_unknown(engine: Engine) -> None:
    call = await a_leased_call(engine)

    async def give_up(driven_call: Call, on_progress: OnProgress) -> Ending:
        raise asyncio.CancelledError

    await run(engine.drive(call, ScriptedUpstreams(give_up)))

    assert (await engine.call(call)).outcome is Outcome.UNKNOWN


async def test_a_bug_before_the_dispatch_rejects_the_call(engine: Engine) -> None:
    call = await a_leased_call(engine)

    await run(engine.drive(call, Broken(ZeroDivisionError())))

    assert (await engine.call(call)).outcome is Outcome.REJECTED


# -- cancelling -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R33")
async def test_cancelling_a_running_call_tells_the_upstream_and_ends_it(engine: Engine) -> None:
    call, tool = await a_leased_call(engine), Holding()

    async with driven(engine.drive(call, ScriptedUpstreams(tool))):
        await tool.until_inside(1)
        await ask_to_cancel(engine, call)

    assert [each.id for each in tool.called_off] == [call.id]
    assert (await engine.call(call)).outcome is Outcome.CANCELLED


async def test_a_call_that_was_cancelled_before_its_dispatch_never_reaches_the_upstream(engine: Engine) -> None:
    call = await a_leased_call(engine)
    upstreams = ScriptedUpstreams()
    await engine.cancel(call)

    await run(engine.drive(call, upstreams))

    assert upstreams.called == []
    ended = await engine.call(call)
    assert (ended.outcome, ended.dispatched_at) == (Outcome.CANCELLED, None)
    assert len(await engine.events()) == 1


@pytest.mark.requirement("R33")
async def test_an_upstream_that_ends_in_the_moment_of_cancelling_completes_the_call(engine: Engine) -> None:
    call, entered = await a_leased_call(engine), asyncio.Event()

    async def answer_all_the_same(driven_call: Call, on_progress: OnProgress) -> Ending:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return DONE
        raise AssertionError

    async with driven(engine.drive(call, ScriptedUpstreams(answer_all_the_same))):
        await asyncio.wait_for(entered.wait(), WAIT_SECONDS)
        await ask_to_cancel(engine, call)

    ended = await engine.call(call)
    assert (ended.outcome, ended.cancel_requested) == (Outcome.RESULT, True)
    assert await engine.result(call) == RESULT


# -- deadlines --------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R33")
async def test_a_deadline_that_passes_while_the_tool_runs_tells_the_upstream_and_times_the_call_out(
    engine: Engine, clock: ShiftedClock
) -> None:
    call, tool = await a_leased_call(engine), Holding()

    async with driven(engine.drive(call, ScriptedUpstreams(tool))):
        await tool.until_inside(1)
        clock.advance(3600)
        await ring(engine, call)

    assert [each.id for each in tool.called_off] == [call.id]
    assert (await engine.call(call)).outcome is Outcome.TIMED_OUT


async def ring(engine: Engine, call: Call) -> None:
    """Wake whoever drives the call, to have it look at the world."""

    async def look(tx: Transaction) -> None:
        tx.ring(cancelling(call.id))

    await engine.store.write(look)


async def test_a_drive_wakes_by_itself_when_the_deadline_passes(engine: Engine) -> None:
    call = await a_leased_call(engine, deadline_in=SHORT_SECONDS)

    await run(engine.drive(call, ScriptedUpstreams(Holding())))

    assert (await engine.call(call)).outcome is Outcome.TIMED_OUT


@pytest.mark.requirement("R33")
async def test_a_deadline_that_passes_while_the_upstream_is_away_rejects_the_call(engine: Engine) -> None:
    call = await a_leased_call(engine, deadline_in=SHORT_SECONDS)
    upstreams = ScriptedUpstreams(away=frozenset({"git"}))

    await run(engine.drive(call, upstreams))

    assert upstreams.called == []
    ended = await engine.call(call)
    assert (ended.outcome, ended.dispatched_at) == (Outcome.REJECTED, None)


async def test_a_call_that_is_leased_too_late_is_never_dispatched(engine: Engine) -> None:
    call = await a_leased_call(engine, deadline_in=-1)
    upstreams = ScriptedUpstreams()

    await run(engine.drive(call, upstreams))

    assert upstreams.called == []
    assert (await engine.call(call)).outcome is Outcome.REJECTED


async def leased_with_handle(engine: Engine, driver: str, *, deadline_in: float = -1) -> Call:
    handle = Handle(driver=driver, data={"task_id": "1"})
    return await a_leased_call(engine, deadline_in=deadline_in, handle=handle, dispatched_at=engine.clock.now(), runs=1)


@pytest.mark.requirement("R33")
async def test_a_call_whose_time_was_up_while_nobody_drove_it_is_stopped_upstream(engine: Engine) -> None:
    call, upstreams = await leased_with_handle(engine, "task"), ScriptedUpstreams()

    await run(engine.drive(call, upstreams))

    assert ([each.id for each in upstreams.told_to_stop], upstreams.called) == ([call.id], [])
    assert (await engine.call(call)).outcome is Outcome.TIMED_OUT


async def test_a_call_whose_time_was_up_between_two_rounds_needs_no_upstream_to_end(engine: Engine) -> None:
    call, upstreams = await leased_with_handle(engine, "mrtr"), ScriptedUpstreams(away=frozenset({"git"}))

    await run(engine.drive(call, upstreams))

    assert not upstreams.wanted.is_set()
    assert (await engine.call(call)).outcome is Outcome.TIMED_OUT


async def test_a_call_whose_time_was_up_ends_also_when_its_upstream_stays_away(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drive_module, "ABANDON_SECONDS", SHORT_SECONDS)
    call, upstreams = await leased_with_handle(engine, "task"), ScriptedUpstreams(away=frozenset({"git"}))

    await run(engine.drive(call, upstreams))

    assert upstreams.told_to_stop == []
    assert (await engine.call(call)).outcome is Outcome.TIMED_OUT


async def test_a_call_between_two_rounds_is_cancelled_without_its_upstream(engine: Engine) -> None:
    call = await leased_with_handle(engine, "mrtr", deadline_in=3600)
    upstreams = ScriptedUpstreams(away=frozenset({"git"}))

    async with driven(engine.drive(call, upstreams)):
        await upstreams.wanted.wait()
        await ask_to_cancel(engine, call)

    assert (await engine.call(call)).outcome is Outcome.CANCELLED


# -- stopping ---------------------------------------------------------------------------------------------------------------


async def test_stopping_hands_back_a_call_that_was_not_dispatched(engine: Engine, halt: Halt) -> None:
    call = await a_leased_call(engine)
    upstreams = ScriptedUpstreams(away=frozenset({"git"}))

    async with driven(engine.drive(call, upstreams, halt=halt)):
        await asyncio.wait_for(upstreams.wanted.wait(), WAIT_SECONDS)
        halt.stopping.set()

    assert_queued_again(await engine.call(call))
    assert await engine.events() == []


def assert_queued_again(call: Call) -> None:
    assert (call.status, call.lease_token, call.dispatched_at, call.runs) == (Status.WORKING, None, None, 0)


class StuckAfterCommit(UnsteadyStore):
    """A store whose answer to one commit never comes."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.committed = asyncio.Event()

    async def write(self, work: Callable[[Transaction], Awaitable[Any]]) -> Any:
        value = await super().write(work)
        if not self.committed.is_set():
            self.committed.set()
            await asyncio.Event().wait()
        return value


async def test_stopping_in_the_moment_of_the_dispatch_hands_the_call_back(
    engine: Engine, clock: ShiftedClock, halt: Halt
) -> None:
    call = await a_leased_call(engine)
    store, upstreams = StuckAfterCommit(engine.store), ScriptedUpstreams()

    async with driven(Engine(store, clock).drive(call, upstreams, halt=halt)):
        await asyncio.wait_for(store.committed.wait(), WAIT_SECONDS)
        assert (await engine.call(call)).dispatched_at is not None
        halt.stopping.set()

    assert upstreams.called == []
    assert_queued_again(await engine.call(call))


async def test_a_dispatched_call_goes_on_while_the_service_stops(engine: Engine, halt: Halt) -> None:
    call, tool = await a_leased_call(engine), Holding()

    async with driven(engine.drive(call, ScriptedUpstreams(tool), halt=halt)):
        await tool.until_inside(1)
        halt.stopping.set()
        tool.release.set()

    assert (await engine.call(call)).outcome is Outcome.RESULT


@pytest.mark.requirement("R33")
async def test_a_call_that_is_cut_off_may_have_run_so_it_is_unknown(engine: Engine, halt: Halt) -> None:
    call, tool = await a_leased_call(engine), Holding()

    async with driven(engine.drive(call, ScriptedUpstreams(tool), halt=halt)):
        await tool.until_inside(1)
        halt.stopping.set()
        halt.cut.set()

    assert [each.id for each in tool.called_off] == [call.id]
    assert (await engine.call(call)).outcome is Outcome.UNKNOWN


# -- leases -----------------------------------------------------------------------------------------------------------------


async def test_a_lost_lease_calls_the_upstream_off_and_writes_nothing(engine: Engine) -> None:
    call, tool = await a_leased_call(engine), Holding()
    drive = engine.drive(call, ScriptedUpstreams(tool))

    async with driven(drive):
        await tool.until_inside(1)
        taken = await take_lease(engine, call)
        drive.lose()

    assert len(tool.called_off) == 1
    assert await engine.call(call) == taken
    assert await engine.events() == []


async def test_a_lease_that_was_lost_unnoticed_writes_nothing(engine: Engine) -> None:
    call, tool = await a_leased_call(engine), Holding()

    async with driven(engine.drive(call, ScriptedUpstreams(tool))):
        await tool.until_inside(1)
        taken = await take_lease(engine, call)
        tool.release.set()

    assert await engine.call(call) == taken
    assert await engine.result(call) is None
    assert await engine.events() == []


async def test_a_call_that_somebody_else_leased_is_not_dispatched(engine: Engine) -> None:
    call, upstreams = await a_leased_call(engine), ScriptedUpstreams()
    taken = await take_lease(engine, call)

    await run(engine.drive(call, upstreams))

    assert upstreams.called == []
    assert await engine.call(call) == taken


async def test_a_call_that_somebody_else_ended_is_called_off(engine: Engine) -> None:
    call, tool = await a_leased_call(engine), Holding()
    lost = failed(Outcome.UNKNOWN, "Its runner was thought to be dead.")

    async with driven(engine.drive(call, ScriptedUpstreams(tool))):
        await tool.until_inside(1)
        running = await engine.call(call)
        await engine.store.write(lambda tx: engine.recorder.finish(tx, running, lost, lease_token=None))
        await ring(engine, call)

    assert len(tool.called_off) == 1
    assert (await engine.call(call)).outcome is Outcome.UNKNOWN
    assert len(await engine.events()) == 1


# -- a store that cannot be written -----------------------------------------------------------------------------------------


class Unhurried(ShiftedClock):
    """The machine's clock; whoever sleeps is only given a turn, and noted."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


async def test_an_end_that_was_seen_is_written_down_as_soon_as_the_store_takes_it(
    engine: Engine, unsteady: UnsteadyStore
) -> None:
    call, clock = await a_leased_call(engine), Unhurried()

    async def fill_the_disk(driven_call: Call, on_progress: OnProgress) -> Ending:
        unsteady.refusals = 5
        return DONE

    await run(Engine(unsteady, clock).drive(call, ScriptedUpstreams(fill_the_disk)))

    assert (await engine.call(call)).outcome is Outcome.RESULT
    assert await engine.result(call) == RESULT
    assert clock.slept == [1.0] * 5


async def test_a_call_whose_dispatch_cannot_be_written_is_not_sent_but_handed_back(
    engine: Engine, unsteady: UnsteadyStore
) -> None:
    call, upstreams = await a_leased_call(engine), ScriptedUpstreams()
    unsteady.refusals = 3

    await run(Engine(unsteady, Unhurried()).drive(call, upstreams))

    assert upstreams.called == []
    assert_queued_again(await engine.call(call))


@pytest.mark.requirement("R35")
async def test_a_call_with_a_handle_is_handed_back_when_the_store_cannot_be_written(
    engine: Engine, unsteady: UnsteadyStore
) -> None:
    handle = Handle(driver="task", data={"task_id": "1"})
    call = await a_leased_call(engine, handle=handle, dispatched_at=engine.clock.now(), runs=1)
    unsteady.refusals = 3

    await run(Engine(unsteady, Unhurried()).drive(call, ScriptedUpstreams()))

    back = await engine.call(call)
    assert (back.phase, back.handle, back.runs, back.outcome) == (Phase.QUEUED, handle, 1, None)


async def test_a_leased_call_keeps_its_deadline_and_its_age(engine: Engine) -> None:
    """What the drive writes is the row as it found it, with what happened to it."""
    call = await a_leased_call(engine)

    await run(engine.drive(call, ScriptedUpstreams()))

    ended = await engine.call(call)
    assert (ended.created_at, ended.deadline_at) == (call.created_at, call.deadline_at)
    assert ended.expires_at == (ended.finished_at or call.created_at) + timedelta(days=7)
