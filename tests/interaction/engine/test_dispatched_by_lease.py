"""A call whose client waits is marked as dispatched in the transaction that inserts it, if its request follows at once."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ringback.domain.call import Call, CallPhase
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.domain.call_rows import CallChange
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.domain.signals import call_cancel_topic
from ringback.runner.execution import ShutdownSignal
from ringback.storage.postgres import unit_of_work
from ringback.storage.sqlite.commit_counter import CommitCounter
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.counting_store import CommitCountingStore
from tests.support.engine import BlockingTool, Engine, OnProgress, ScriptedUpstreams, wait_until
from tests.support.executions import assert_queued_again, executing, replace_lease, run_execution
from tests.support.limits import WAIT_SECONDS
from tests.support.stored_work import COMPLETED_RESULT, LEASE_SECONDS

pytestmark = pytest.mark.requirement("R35")


def new_call(engine: Engine) -> Call:
    return make_call(deadline_at=engine.clock.now().replace(year=2100))


@asynccontextmanager
async def granting_leases(engine: Engine, upstreams: ScriptedUpstreams, **config: Any) -> AsyncGenerator[asyncio.Event]:
    """A running runner that grants leases. The event or the end of the context stops it.

    Its first query has ended: while it runs, it reserves all capacity, and a new call is queued.
    """
    counting = engine.store = CommitCountingStore(engine.store)

    async def grants_leases() -> bool:
        return "Runner._lease_queued_calls" in counting.finished

    async with engine.running_runner(upstreams, poll_seconds=3600.0, **config) as stop:
        await wait_until(grants_leases)
        yield stop


async def start_call(engine: Engine, call: Call, *, until: asyncio.Event | None = None) -> Call:
    """Insert a call whose client waits; with `until`, its transaction stays open until then. Return the row."""
    assert engine.call_handoff.consumer is not None
    leases = engine.call_handoff.consumer()

    async def insert(tx: Transaction) -> Call:
        leased = await leases.lease_new(tx, call, may_dispatch=True)
        await tx.calls.insert(leased or call)
        while until is not None and not until.is_set():
            await tx.pause()
        return leased or call

    return await engine.store.write(insert)


async def test_the_dispatch_is_committed_before_the_tool_is_called(engine: Engine) -> None:
    rows: list[Call] = []

    async def read_row(call: Call, on_progress: OnProgress) -> CallCompletion:
        rows.append(await engine.read_call(call))
        return COMPLETED_RESULT

    counting = engine.store = CommitCountingStore(engine.store)
    call = new_call(engine)
    async with granting_leases(engine, ScriptedUpstreams(read_row)):
        counting.clear()
        await start_call(engine, call)
        await engine.wait_until_final(call)

    assert counting.written == ["start_call", "CompletionBatcher._record_completions"]
    assert [(row.dispatched_at is not None, row.runs, row.phase) for row in rows] == [(True, 1, CallPhase.RUNNING)]


async def test_a_call_whose_upstream_has_no_open_session_is_not_dispatched_yet(engine: Engine) -> None:
    upstreams = ScriptedUpstreams(away=frozenset({"git"}))
    async with granting_leases(engine, upstreams):
        row = await start_call(engine, new_call(engine))
        await asyncio.wait_for(upstreams.session_requested.wait(), WAIT_SECONDS)

        assert (row.phase, row.dispatched_at) == (CallPhase.RUNNING, None)


async def test_a_call_that_waits_for_background_work_is_not_dispatched_yet(engine: Engine) -> None:
    async with granting_leases(engine, ScriptedUpstreams()):
        with engine.admission.admit_call(), engine.admission.admit_call():
            row = await start_call(engine, call := new_call(engine))
        await engine.wait_until_final(call)

    assert (row.phase, row.dispatched_at) == (CallPhase.RUNNING, None)


async def test_a_call_without_capacity_is_queued_and_not_dispatched(engine: Engine) -> None:
    tool = BlockingTool()
    first, second = new_call(engine), new_call(engine)
    async with granting_leases(engine, ScriptedUpstreams(tool, capacity={"git": 1})):
        rows = [await start_call(engine, call) for call in (first, second)]
        assert [(row.phase, row.dispatched_at is None) for row in rows] == [
            (CallPhase.RUNNING, False),
            (CallPhase.QUEUED, True),
        ]
        tool.release.set()
        await engine.wait_until_final(first)


async def test_a_process_that_dies_after_the_commit_leaves_the_call_unknown(engine: Engine) -> None:
    """Whether the request was sent is unknown, and no client has received the call's id."""
    call, tool = new_call(engine), BlockingTool()
    async with granting_leases(engine, ScriptedUpstreams(tool)):
        await start_call(engine, call)
        await engine.run_recovery()
        tool.release.set()

    assert (await engine.read_call(call)).outcome is CallOutcome.UNKNOWN


async def test_the_session_is_opened_during_the_commit_and_the_tool_is_called_after_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstreams, call = ScriptedUpstreams(), new_call(engine)
    async with granting_leases(engine, upstreams):
        commit_allowed = hold_commits(monkeypatch)
        starting = asyncio.create_task(start_call(engine, call))
        await asyncio.wait_for(upstreams.session_requested.wait(), WAIT_SECONDS)
        await let_others_run()
        called_before = list(upstreams.called)
        commit_allowed.set()
        await starting
        (ended,) = await engine.wait_until_final(call)

    assert called_before == []
    assert (ended.outcome, [each.id for each in upstreams.called]) == (CallOutcome.RESULT, [call.id])


async def test_a_commit_that_fails_ends_the_execution_and_frees_its_capacity(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstreams, refused, call = ScriptedUpstreams(capacity={"git": 1}), new_call(engine), new_call(engine)
    async with granting_leases(engine, upstreams):
        with monkeypatch.context() as failing:
            commit_allowed = hold_commits(failing, error=StoreUnavailable("The disk is full."))
            starting = asyncio.create_task(start_call(engine, refused))
            await asyncio.wait_for(upstreams.session_requested.wait(), WAIT_SECONDS)
            commit_allowed.set()
            with pytest.raises(StoreUnavailable):
                await starting
        leased = await start_call(engine, call)
        await engine.wait_until_final(call)

    assert leased.phase is CallPhase.RUNNING
    assert [each.id for each in upstreams.called] == [call.id]


async def test_a_lease_that_is_no_longer_trusted_after_a_slow_commit_is_checked_before_the_call_is_sent(
    engine: Engine,
) -> None:
    upstreams, committed = ScriptedUpstreams(), asyncio.Event()
    call = await engine.lease_dispatched_call(new_call(engine))
    execution = engine.make_execution(call, upstreams, committed=committed)
    async with executing(execution):
        await asyncio.wait_for(upstreams.session_requested.wait(), WAIT_SECONDS)
        await replace_lease(engine, call)
        execution.trusted_until = 0.0
        committed.set()

    assert upstreams.called == []


async def test_a_call_whose_deadline_passes_during_its_commit_is_rejected_and_not_sent(still: Engine) -> None:
    assert isinstance(still.clock, FakeClock)
    upstreams, committed = ScriptedUpstreams(), asyncio.Event()
    call = await still.lease_dispatched_call(make_call(deadline_at=still.clock.now() + timedelta(seconds=2)))
    async with executing(still.make_execution(call, upstreams, committed=committed)):
        await asyncio.wait_for(upstreams.session_requested.wait(), WAIT_SECONDS)
        still.clock.advance(3)
        committed.set()
        (ended,) = await still.wait_until_final(call)

    assert upstreams.called == []
    assert ended.outcome is CallOutcome.REJECTED


async def test_a_runner_that_stops_before_the_commit_queues_the_call_again(engine: Engine) -> None:
    call, upstreams, commit_allowed = new_call(engine), ScriptedUpstreams(), asyncio.Event()
    async with granting_leases(engine, upstreams, drain_seconds=0.0) as stop:
        starting = asyncio.create_task(start_call(engine, call, until=commit_allowed))
        await asyncio.wait_for(upstreams.session_looked_up.wait(), WAIT_SECONDS)  # the transaction is open
        stop.set()
        await let_others_run()
        commit_allowed.set()

    assert (await starting).dispatched_at is not None
    assert upstreams.called == []
    assert_queued_again(await engine.read_call(call))


async def test_a_call_that_was_not_sent_is_queued_again_at_a_shutdown(engine: Engine) -> None:
    upstreams, shutdown = ScriptedUpstreams(away=frozenset({"git"})), ShutdownSignal()
    call = await engine.lease_dispatched_call(new_call(engine))

    async with executing(engine.make_execution(call, upstreams, shutdown=shutdown)):
        await asyncio.wait_for(upstreams.session_requested.wait(), WAIT_SECONDS)
        shutdown.drain_requested.set()

    assert_queued_again(await engine.read_call(call))


async def test_a_lease_that_is_no_longer_trusted_is_checked_before_the_call_is_sent(engine: Engine) -> None:
    upstreams = ScriptedUpstreams()
    call = await engine.lease_dispatched_call(new_call(engine))
    await replace_lease(engine, call)

    await run_execution(engine.make_execution(call, upstreams, trusted_for_seconds=0.0))

    assert upstreams.called == []
    assert (await engine.read_call(call)).phase is CallPhase.RUNNING


async def test_a_lease_that_ended_while_the_machine_slept_is_checked_before_the_call_is_sent(still: Engine) -> None:
    upstreams = ScriptedUpstreams()
    call = await still.lease_dispatched_call(new_call(still))
    await replace_lease(still, call)
    assert isinstance(still.clock, FakeClock)
    still.clock.suspend(LEASE_SECONDS)

    await run_execution(still.make_execution(call, upstreams))

    assert upstreams.called == []


async def test_a_late_execution_under_its_own_lease_counts_one_run(engine: Engine) -> None:
    call = await engine.lease_dispatched_call(new_call(engine))

    await run_execution(engine.make_execution(call, ScriptedUpstreams(), trusted_for_seconds=0.0))

    ended = await engine.read_call(call)
    assert (ended.outcome, ended.runs) == (CallOutcome.RESULT, 1)


async def test_a_cancellation_right_after_the_commit_ends_the_call(engine: Engine) -> None:
    call, tool = new_call(engine), BlockingTool()
    async with granting_leases(engine, ScriptedUpstreams(tool)):
        row = await start_call(engine, call)
        await request_cancellation(engine, row)
        (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is CallOutcome.CANCELLED


async def request_cancellation(engine: Engine, call: Call) -> None:
    async def request(tx: Transaction) -> None:
        cancelling = replace(call, cancel_requested=True)
        await tx.calls.update(cancelling, CallChange.CANCELLING, expected=call.status, lease_token=None)
        tx.notify(call_cancel_topic(call.id))

    await engine.store.write(request)


def hold_commits(monkeypatch: pytest.MonkeyPatch, *, error: Exception | None = None) -> threading.Event:
    """From now on each commit of either store waits for the event, and then raises the error."""
    allowed = threading.Event()
    commit_file, commit_session = CommitCounter.commit_transaction, unit_of_work.commit_transaction

    def commit_sqlite(counter: CommitCounter, *, wrote: bool) -> None:
        assert not wrote or allowed.wait(WAIT_SECONDS)
        if error is not None:
            raise error
        commit_file(counter, wrote=wrote)

    async def commit_postgres(connection: Any) -> None:
        assert await asyncio.to_thread(allowed.wait, WAIT_SECONDS)
        if error is not None:
            raise error
        await commit_session(connection)

    monkeypatch.setattr(CommitCounter, "commit_transaction", commit_sqlite)
    monkeypatch.setattr(unit_of_work, "commit_transaction", commit_postgres)
    return allowed


async def let_others_run() -> None:
    """Let the runner reach the end of its drain, if nothing holds it."""
    for _ in range(100):
        await asyncio.sleep(0)
