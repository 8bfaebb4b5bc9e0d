"""At shutdown an unsent call is handed back, a dispatched one may end, and an aborted one is unknown."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ringback.domain.call import Call
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.ports import Transaction
from ringback.runner.drivers.driver import BoundDriverPort
from ringback.runner.execution import ShutdownSignal
from tests.support.clock import OffsetClock
from tests.support.engine import WAIT_SECONDS, BlockingTool, Engine, ScriptedUpstreams
from tests.support.executions import assert_queued_again, executing, lease_new_call
from tests.support.stores import StoreWrapper


@pytest.fixture
def shutdown() -> ShutdownSignal:
    return ShutdownSignal()


async def test_stopping_hands_back_a_call_that_was_not_dispatched(engine: Engine, shutdown: ShutdownSignal) -> None:
    call = await lease_new_call(engine)
    upstreams = ScriptedUpstreams(away=frozenset({"git"}))

    async with executing(engine.make_execution(call, upstreams, shutdown=shutdown)):
        await asyncio.wait_for(upstreams.session_requested.wait(), WAIT_SECONDS)
        shutdown.drain_requested.set()

    assert_queued_again(await engine.read_call(call))
    assert await engine.read_events() == []


@pytest.mark.parametrize("cut", [False, True], ids=["stopping", "cut off"])
async def test_an_execution_that_begins_during_shutdown_sends_nothing(
    engine: Engine, shutdown: ShutdownSignal, *, cut: bool
) -> None:
    call = await lease_new_call(engine)
    upstreams = ScriptedUpstreams(BlockingTool())
    shutdown.drain_requested.set()
    if cut:
        shutdown.abort_requested.set()

    await asyncio.wait_for(engine.make_execution(call, upstreams, shutdown=shutdown).run(), WAIT_SECONDS)

    assert_queued_again(await engine.read_call(call))
    assert upstreams.called == []


class SlowClosingUpstreams(ScriptedUpstreams):
    """Sessions that take for ever to be closed."""

    def __init__(self) -> None:
        super().__init__()
        self.leaving = asyncio.Event()

    @asynccontextmanager
    async def open_call_session(self, call: Call) -> AsyncGenerator[BoundDriverPort]:
        async with super().open_call_session(call) as session:
            yield session
            self.leaving.set()
            await asyncio.Event().wait()


@pytest.mark.requirement("R35")
async def test_a_result_counts_even_if_its_session_is_aborted(engine: Engine, shutdown: ShutdownSignal) -> None:
    call = await lease_new_call(engine)
    upstreams = SlowClosingUpstreams()

    async with executing(engine.make_execution(call, upstreams, shutdown=shutdown)):
        await asyncio.wait_for(upstreams.leaving.wait(), WAIT_SECONDS)
        shutdown.drain_requested.set()
        shutdown.abort_requested.set()

    assert (await engine.read_call(call)).outcome is CallOutcome.RESULT


class StoreBlockedAfterCommit(StoreWrapper):
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


async def test_a_call_is_handed_back_when_shutdown_begins_at_its_dispatch(
    engine: Engine, clock: OffsetClock, shutdown: ShutdownSignal
) -> None:
    call = await lease_new_call(engine)
    store, upstreams = StoreBlockedAfterCommit(engine.store), ScriptedUpstreams()

    async with executing(Engine(store, clock).make_execution(call, upstreams, shutdown=shutdown)):
        await asyncio.wait_for(store.committed.wait(), WAIT_SECONDS)
        assert (await engine.read_call(call)).dispatched_at is not None
        shutdown.drain_requested.set()

    assert upstreams.called == []
    assert_queued_again(await engine.read_call(call))


async def test_a_dispatched_call_goes_on_while_the_service_stops(engine: Engine, shutdown: ShutdownSignal) -> None:
    call, tool = await lease_new_call(engine), BlockingTool()

    async with executing(engine.make_execution(call, ScriptedUpstreams(tool), shutdown=shutdown)):
        await tool.wait_until_inside(1)
        shutdown.drain_requested.set()
        tool.release.set()

    assert (await engine.read_call(call)).outcome is CallOutcome.RESULT


@pytest.mark.requirement("R33")
async def test_a_call_that_is_aborted_may_have_run_so_it_is_unknown(engine: Engine, shutdown: ShutdownSignal) -> None:
    call, tool = await lease_new_call(engine), BlockingTool()

    async with executing(engine.make_execution(call, ScriptedUpstreams(tool), shutdown=shutdown)):
        await tool.wait_until_inside(1)
        shutdown.drain_requested.set()
        shutdown.abort_requested.set()

    assert [each.id for each in tool.cancelled] == [call.id]
    assert (await engine.read_call(call)).outcome is CallOutcome.UNKNOWN
