"""A drive over a store that cannot be written for a while: an end that was seen is kept, and nothing unwritten is sent."""

import asyncio

import pytest

from ringback.domain.call import Call, CallCompletion, Handle, CallOutcome, CallPhase
from ringback.runner.drive import ShutdownSignal
from tests.support.calls import calls_of
from tests.support.clock import ShiftedClock
from tests.support.driving import a_leased_call, assert_queued_again, run
from tests.support.engine import DONE, RESULT, WAIT_SECONDS, Engine, Holding, OnProgress, ScriptedUpstreams, until
from tests.support.stores import FOREVER, UnsteadyStore


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

    async def fill_the_disk(driven_call: Call, on_progress: OnProgress) -> CallCompletion:
        unsteady.refusals = 5
        return DONE

    await run(Engine(unsteady, clock).drive(call, ScriptedUpstreams(fill_the_disk)))

    assert (await engine.call(call)).outcome is CallOutcome.RESULT
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
    assert (back.phase, back.handle, back.runs, back.outcome) == (CallPhase.QUEUED, handle, 1, None)


async def test_an_end_that_the_store_does_not_take_is_left_to_the_next_process_once_this_one_must_end(
    engine: Engine, unsteady: UnsteadyStore, caplog: pytest.LogCaptureFixture
) -> None:
    call, halt = await a_leased_call(engine), ShutdownSignal()

    async def fill_the_disk(driven_call: Call, on_progress: OnProgress) -> CallCompletion:
        unsteady.refusals = FOREVER
        return DONE

    driving = asyncio.create_task(engine.drive(call, ScriptedUpstreams(fill_the_disk), halt=halt).run())

    async def is_not_recorded() -> bool:
        return "call.not_recorded" in caplog.messages

    await until(is_not_recorded)
    halt.drain_requested.set()
    halt.abort_requested.set()
    await asyncio.wait_for(driving, WAIT_SECONDS)

    assert caplog.records[-1].message == "call.left_unrecorded"
    left = await engine.call(call)
    assert (left.outcome, left.lease_token) == (None, call.lease_token)


async def test_a_runner_stops_while_the_store_takes_nothing_and_the_next_start_tells_the_truth(
    engine: Engine, unsteady: UnsteadyStore
) -> None:
    (call, *others), tool = calls_of(engine, 8), Holding()
    await engine.queue(call, *others)

    async with engine.running(ScriptedUpstreams(tool), drain_seconds=0.0) as stop:
        await tool.until_inside(8)
        unsteady.refusals = FOREVER
        stop.set()
    unsteady.refusals = 0
    await engine.recover()

    assert {(await engine.call(each)).outcome for each in (call, *others)} == {CallOutcome.UNKNOWN}


async def test_an_end_is_tried_once_more_after_the_cut(engine: Engine, unsteady: UnsteadyStore) -> None:
    call, halt = await a_leased_call(engine), ShutdownSignal()

    async def end_late(driven_call: Call, on_progress: OnProgress) -> CallCompletion:
        halt.drain_requested.set()
        halt.abort_requested.set()
        return DONE

    await run(engine.drive(call, ScriptedUpstreams(end_late), halt=halt))

    assert (await engine.call(call)).outcome is CallOutcome.RESULT
