"""A running call that another process ends as cancelled is cancelled upstream, and its later result is not written."""

import asyncio
import logging
from dataclasses import replace

import pytest

from ringback.domain.call import Call, Handle
from ringback.domain.call_outcome import CANCELLED_COMPLETION, CallCompletion
from ringback.domain.call_rows import CallChange
from ringback.domain.clock import seconds
from ringback.domain.ports import Transaction
from ringback.domain.signals import call_cancel_topic
from ringback.runner.drivers.driver import CallContext
from ringback.runner.execution import CallExecution
from tests.support.builders import make_call
from tests.support.engine import WAIT_SECONDS, BlockingTool, Engine, OnProgress, ScriptedUpstreams
from tests.support.stored_work import COMPLETED_RESULT


async def lease_new_call(engine: Engine) -> Call:
    return await engine.lease_call(make_call(deadline_at=engine.clock.now() + seconds(3600)))


async def end_as_cancelled(engine: Engine, call: Call, *, ring: bool = True) -> Call:
    """As the service does it."""

    async def cancel(tx: Transaction) -> Call:
        running = await tx.calls.get(call.id)
        assert running is not None
        if ring:
            tx.notify(call_cancel_topic(call.id))
        ended = await engine.recorder.finish_call(
            tx, replace(running, cancel_requested=True), CANCELLED_COMPLETION, lease_token=None
        )
        assert ended is not None
        return ended

    return await engine.store.write(cancel)


async def run(execution: CallExecution) -> None:
    await asyncio.wait_for(execution.run(), WAIT_SECONDS)


async def test_the_upstream_receives_a_cancellation(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    holding = BlockingTool()
    upstreams = ScriptedUpstreams(holding)
    call = await lease_new_call(engine)
    running = asyncio.create_task(run(engine.make_execution(call, upstreams)))
    await holding.wait_until_inside(1)
    ended = await end_as_cancelled(engine, call)
    await running
    assert [cancelled.id for cancelled in upstreams.cancelled] == [call.id]
    assert holding.cancelled
    assert await engine.read_call(call) == ended
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not warnings, "nothing was lost"


async def test_a_driver_that_notices_the_end_first_also_cancels_upstream(engine: Engine) -> None:
    """The driver loses the lease before the execution receives the notification."""

    class Keeping(ScriptedUpstreams):
        async def run_call(self, context: CallContext) -> CallCompletion:
            await end_as_cancelled(engine, context.call, ring=False)
            await context.save_handle(Handle(driver="task", data={"task_id": "task-1"}))
            raise AssertionError("The lease was lost.")

    upstreams = Keeping()
    call = await lease_new_call(engine)
    await run(engine.make_execution(call, upstreams))
    assert [cancelled.id for cancelled in upstreams.cancelled] == [call.id]


async def test_the_tools_late_result_is_not_written(engine: Engine) -> None:
    async def answers_all_the_same(call: Call, on_progress: OnProgress) -> CallCompletion:
        await end_as_cancelled(engine, call, ring=False)
        return COMPLETED_RESULT

    call = await lease_new_call(engine)
    await run(engine.make_execution(call, ScriptedUpstreams(answers_all_the_same)))
    ended = await engine.read_call(call)
    assert ended.outcome == CANCELLED_COMPLETION.outcome
    assert await engine.read_result(call) is None


async def test_an_execution_without_its_lease_sends_no_cancellation(engine: Engine) -> None:
    async def taken(call: Call, on_progress: OnProgress) -> CallCompletion:
        async def take(tx: Transaction) -> None:
            found = await tx.calls.get(call.id)
            assert found is not None
            taken = replace(found, lease_token="another")
            await tx.calls.update(taken, CallChange.QUEUED, expected=found.status, lease_token=None)
            tx.notify(call_cancel_topic(call.id))

        await engine.store.write(take)
        await asyncio.Event().wait()
        return COMPLETED_RESULT

    upstreams = ScriptedUpstreams(taken)
    await run(engine.make_execution(await lease_new_call(engine), upstreams))
    assert upstreams.cancelled == []
