"""An execution over an unavailable store keeps an observed completion and sends nothing that is not committed."""

import asyncio

import pytest

from ringback.domain.call import Call, CallPhase, Handle
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.runner.execution import ShutdownSignal
from tests.support.calls import make_calls
from tests.support.clock import OffsetClock
from tests.support.engine import WAIT_SECONDS, BlockingTool, Engine, OnProgress, ScriptedUpstreams, wait_until
from tests.support.executions import assert_queued_again, lease_new_call, run_execution
from tests.support.stored_work import COMPLETED_RESULT, RESULT
from tests.support.stores import FOREVER, FailingStore


class InstantSleepClock(OffsetClock):
    """The machine's clock; a sleep only yields to the event loop, and is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


async def test_an_observed_completion_is_written_as_soon_as_the_store_accepts_it(
    engine: Engine, unsteady: FailingStore
) -> None:
    call, clock = await lease_new_call(engine), InstantSleepClock()

    async def fill_the_disk(driven_call: Call, on_progress: OnProgress) -> CallCompletion:
        unsteady.refusals = 5
        return COMPLETED_RESULT

    await run_execution(Engine(unsteady, clock).make_execution(call, ScriptedUpstreams(fill_the_disk)))

    assert (await engine.read_call(call)).outcome is CallOutcome.RESULT
    assert await engine.read_result(call) == RESULT
    assert clock.slept == [1.0] * 5


async def test_a_call_whose_dispatch_cannot_be_written_is_not_sent_but_handed_back(
    engine: Engine, unsteady: FailingStore
) -> None:
    call, upstreams = await lease_new_call(engine), ScriptedUpstreams()
    unsteady.refusals = 3

    await run_execution(Engine(unsteady, InstantSleepClock()).make_execution(call, upstreams))

    assert upstreams.called == []
    assert_queued_again(await engine.read_call(call))


@pytest.mark.requirement("R35")
async def test_a_call_with_a_handle_is_handed_back_when_the_store_cannot_be_written(
    engine: Engine, unsteady: FailingStore
) -> None:
    handle = Handle(driver="task", data={"task_id": "1"})
    call = await lease_new_call(engine, handle=handle, dispatched_at=engine.clock.now(), runs=1)
    unsteady.refusals = 3

    await run_execution(Engine(unsteady, InstantSleepClock()).make_execution(call, ScriptedUpstreams()))

    back = await engine.read_call(call)
    assert (back.phase, back.handle, back.runs, back.outcome) == (CallPhase.QUEUED, handle, 1, None)


async def test_after_the_abort_an_unwritten_completion_is_left_to_the_next_process(
    engine: Engine, unsteady: FailingStore, caplog: pytest.LogCaptureFixture
) -> None:
    call, shutdown = await lease_new_call(engine), ShutdownSignal()

    async def fill_the_disk(driven_call: Call, on_progress: OnProgress) -> CallCompletion:
        unsteady.refusals = FOREVER
        return COMPLETED_RESULT

    running = asyncio.create_task(
        engine.make_execution(call, ScriptedUpstreams(fill_the_disk), shutdown=shutdown).run()
    )

    async def is_not_recorded() -> bool:
        return "call.not_recorded" in caplog.messages

    await wait_until(is_not_recorded)
    shutdown.drain_requested.set()
    shutdown.abort_requested.set()
    await asyncio.wait_for(running, WAIT_SECONDS)

    assert caplog.records[-1].message == "call.left_unrecorded"
    left = await engine.read_call(call)
    assert (left.outcome, left.lease_token) == (None, call.lease_token)


async def test_a_runner_stops_while_the_store_fails_and_the_next_start_records_the_outcome(
    engine: Engine, unsteady: FailingStore
) -> None:
    (call, *others), tool = make_calls(engine, 8), BlockingTool()
    await engine.insert_calls(call, *others)

    async with engine.running_runner(ScriptedUpstreams(tool), drain_seconds=0.0) as stop:
        await tool.wait_until_inside(8)
        unsteady.refusals = FOREVER
        stop.set()
    unsteady.refusals = 0
    await engine.run_recovery()

    assert {(await engine.read_call(each)).outcome for each in (call, *others)} == {CallOutcome.UNKNOWN}


async def test_a_completion_has_one_more_attempt_after_the_abort(engine: Engine, unsteady: FailingStore) -> None:
    call, shutdown = await lease_new_call(engine), ShutdownSignal()

    async def end_late(driven_call: Call, on_progress: OnProgress) -> CallCompletion:
        shutdown.drain_requested.set()
        shutdown.abort_requested.set()
        return COMPLETED_RESULT

    await run_execution(engine.make_execution(call, ScriptedUpstreams(end_late), shutdown=shutdown))

    assert (await engine.read_call(call)).outcome is CallOutcome.RESULT
