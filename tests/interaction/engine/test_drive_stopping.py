"""A drive that has to stop: what was not sent is handed back, what was sent may end, and what is cut off is unknown."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ringback.domain.call import Outcome
from ringback.domain.ports import Transaction
from ringback.runner.drive import Halt
from tests.support.clock import ShiftedClock
from tests.support.driving import a_leased_call, assert_queued_again, driven
from tests.support.engine import WAIT_SECONDS, Engine, Holding, ScriptedUpstreams
from tests.support.stores import StoreAround


@pytest.fixture
def halt() -> Halt:
    return Halt()


async def test_stopping_hands_back_a_call_that_was_not_dispatched(engine: Engine, halt: Halt) -> None:
    call = await a_leased_call(engine)
    upstreams = ScriptedUpstreams(away=frozenset({"git"}))

    async with driven(engine.drive(call, upstreams, halt=halt)):
        await asyncio.wait_for(upstreams.wanted.wait(), WAIT_SECONDS)
        halt.stopping.set()

    assert_queued_again(await engine.call(call))
    assert await engine.events() == []


class StuckAfterCommit(StoreAround):
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
