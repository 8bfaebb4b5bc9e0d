"""Calls that were ended as cancelled while they ran: the upstream is told to stop, and nothing it still says counts."""

import asyncio
from dataclasses import replace

import pytest

from ringback.domain.call import CANCELLED_COMPLETION, Call, CallCompletion, Handle
from ringback.domain.call_rows import CallChange
from ringback.domain.clock import seconds
from ringback.domain.ports import Transaction
from ringback.domain.signals import call_cancel_topic
from ringback.runner.drive import CallExecution
from ringback.runner.drivers import CallContext
from tests.support.builders import a_call
from tests.support.engine import DONE, WAIT_SECONDS, Engine, Holding, OnProgress, ScriptedUpstreams


async def a_leased_call(engine: Engine) -> Call:
    return await engine.lease(a_call(deadline_at=engine.clock.now() + seconds(3600)))


async def cancel_for_good(engine: Engine, call: Call, *, ring: bool = True) -> Call:
    """As the service does it."""

    async def cancel(tx: Transaction) -> Call:
        running = await tx.calls.get(call.id)
        assert running is not None
        if ring:
            tx.notify(call_cancel_topic(call.id))
        ended = await engine.recorder.finish_call(tx, replace(running, cancel_requested=True), CANCELLED_COMPLETION, lease_token=None)
        assert ended is not None
        return ended

    return await engine.store.write(cancel)


async def run(drive: CallExecution) -> None:
    await asyncio.wait_for(drive.run(), WAIT_SECONDS)


async def test_the_upstream_is_told_to_stop(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    holding = Holding()
    upstreams = ScriptedUpstreams(holding)
    call = await a_leased_call(engine)
    running = asyncio.create_task(run(engine.drive(call, upstreams)))
    await holding.until_inside(1)
    ended = await cancel_for_good(engine, call)
    await running
    assert [told.id for told in upstreams.told_to_stop] == [call.id]
    assert holding.called_off
    assert await engine.call(call) == ended
    assert not caplog.records, "nothing was lost"


async def test_a_driver_that_notices_first_tells_the_upstream_too(engine: Engine) -> None:
    """It finds that the call is not its own any more before the ring is heard."""

    class Keeping(ScriptedUpstreams):
        async def drive(self, desk: CallContext) -> CallCompletion:
            await cancel_for_good(engine, desk.call, ring=False)
            await desk.save_handle(Handle(driver="task", data={"task_id": "task-1"}))
            raise AssertionError("The lease was lost.")

    upstreams = Keeping()
    call = await a_leased_call(engine)
    await run(engine.drive(call, upstreams))
    assert [told.id for told in upstreams.told_to_stop] == [call.id]


async def test_what_the_tool_answers_all_the_same_is_not_written_down(engine: Engine) -> None:
    async def answers_all_the_same(call: Call, on_progress: OnProgress) -> CallCompletion:
        await cancel_for_good(engine, call, ring=False)
        return DONE

    call = await a_leased_call(engine)
    await run(engine.drive(call, ScriptedUpstreams(answers_all_the_same)))
    ended = await engine.call(call)
    assert ended.outcome == CANCELLED_COMPLETION.outcome
    assert await engine.result(call) is None


async def test_a_lease_that_somebody_else_has_tells_the_upstream_nothing(engine: Engine) -> None:
    async def taken(call: Call, on_progress: OnProgress) -> CallCompletion:
        async def take(tx: Transaction) -> None:
            found = await tx.calls.get(call.id)
            assert found is not None
            taken = replace(found, lease_token="another")
            await tx.calls.update(taken, CallChange.QUEUED, expected=found.status, lease_token=None)
            tx.notify(call_cancel_topic(call.id))

        await engine.store.write(take)
        await asyncio.Event().wait()
        return DONE

    upstreams = ScriptedUpstreams(taken)
    await run(engine.drive(await a_leased_call(engine), upstreams))
    assert upstreams.told_to_stop == []
