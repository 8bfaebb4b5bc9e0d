"""A drive over a store that cannot be written for a while: an end that was seen is kept, and nothing unwritten is sent."""

import asyncio

import pytest

from ringback.domain.call import Call, Ending, Handle, Outcome, Phase
from tests.support.clock import ShiftedClock
from tests.support.driving import a_leased_call, assert_queued_again, run
from tests.support.engine import DONE, RESULT, Engine, OnProgress, ScriptedUpstreams
from tests.support.stores import UnsteadyStore


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
