"""A call whose tools/call was refused for its credentials counts as unsent, until it is sent again."""

import asyncio

import pytest

from ringback.domain.call import Call, CallPhase, Handle
from ringback.domain.call_outcome import CallCompletion
from ringback.domain.clock import seconds
from ringback.runner.drivers.driver import LeaseLost
from ringback.runner.execution import ShutdownSignal
from ringback.runner.leased_dispatch_record import LeasedDispatchRecord
from ringback.upstreams.dispatch_records import get_dispatch_record
from tests.support.builders import make_call
from tests.support.engine import COMPLETED_RESULT, WAIT_SECONDS, Engine, OnProgress, ScriptedUpstreams
from tests.support.executions import assert_queued_again, executing, lease_new_call, replace_lease, run_execution
from tests.support.leased_calls import make_leased_call


class RefusingTool:
    """A tool whose upstream refuses the first token. The transport refreshes it and sends the request again."""

    def __init__(self) -> None:
        self.is_refused, self.is_refreshed = asyncio.Event(), asyncio.Event()
        self.runs: list[str] = []
        self.sending: asyncio.Task[CallCompletion] | None = None

    async def __call__(self, call: Call, on_progress: OnProgress) -> CallCompletion:  # noqa: ARG002 - what a tool is given
        self.sending = asyncio.create_task(self._send_twice(call))
        return await asyncio.shield(self.sending)  # the SDK sends in a task of its own, which outlives the call's

    async def _send_twice(self, call: Call) -> CallCompletion:
        record = get_dispatch_record()
        assert record is not None
        await record.record_dispatch()
        await record.record_unsent()
        self.is_refused.set()
        await self.is_refreshed.wait()
        await record.record_dispatch()
        self.runs.append(call.id)
        return COMPLETED_RESULT

    async def wait_until_refused(self) -> None:
        await asyncio.wait_for(self.is_refused.wait(), WAIT_SECONDS)


async def test_the_store_says_that_a_refused_call_was_not_sent_until_it_is_sent_again(engine: Engine) -> None:
    call, tool = await lease_new_call(engine), RefusingTool()

    async with executing(engine.make_execution(call, ScriptedUpstreams(tool))):
        await tool.wait_until_refused()
        refused = await engine.read_call(call)
        tool.is_refreshed.set()

    ended = await engine.read_call(call)
    assert (refused.phase, refused.dispatched_at, refused.runs) == (CallPhase.RUNNING, None, 0)
    assert (str(ended.outcome), ended.runs, ended.dispatched_at is None) == ("result", 1, False)


async def test_a_refused_call_that_another_runner_holds_is_not_sent_again(engine: Engine) -> None:
    call, tool = await lease_new_call(engine), RefusingTool()

    async with executing(engine.make_execution(call, ScriptedUpstreams(tool))):
        await tool.wait_until_refused()
        taken = await replace_lease(engine, call)
        tool.is_refreshed.set()

    assert (tool.runs, await engine.read_call(call)) == ([], taken)


async def test_a_call_that_is_handed_back_during_the_refresh_is_sent_by_the_next_runner_only(engine: Engine) -> None:
    call, tool, shutdown = await lease_new_call(engine), RefusingTool(), ShutdownSignal()

    async with executing(engine.make_execution(call, ScriptedUpstreams(tool), shutdown=shutdown)):
        await tool.wait_until_refused()
        shutdown.drain_requested.set()
    assert_queued_again(await engine.read_call(call))
    tool.is_refreshed.set()
    assert tool.sending is not None
    with pytest.raises(LeaseLost):
        await tool.sending

    again = RefusingTool()
    again.is_refreshed.set()
    (leased,) = await engine.lease_queued_calls(call.upstream, limit=1)
    await run_execution(engine.make_execution(leased, ScriptedUpstreams(again)))
    assert (tool.runs, again.runs, (await engine.read_call(call)).runs) == ([], [call.id], 1)


async def test_a_refused_round_goes_back_to_its_handle_and_is_sent_from_there(still: Engine) -> None:
    """Without the handle, the tool would begin again and ask again."""
    handle = Handle(driver="mrtr", data={"request_state": "state", "round": 1})
    now = still.clock.now()
    lease = {"lease_owner": "one", "lease_token": "held", "lease_until": now + seconds(30)}
    call = make_call(phase=CallPhase.RUNNING, handle=handle, dispatched_at=now, runs=1, **lease)
    await still.insert_calls(call)
    leased = make_leased_call(still, call)
    record = LeasedDispatchRecord(leased)

    handles: list[Handle | None] = []
    for step in (
        lambda: leased.save_handle(None),
        record.record_dispatch,
        record.record_unsent,
        lambda: leased.save_handle(handle),  # as the driver does, once it sees the refusal
        record.record_dispatch,
        record.record_unsent,
    ):
        await step()
        stored = await still.read_call(call)
        handles.append(stored.handle)
        assert (stored.dispatched_at, stored.runs) == (call.dispatched_at, 1)
    assert handles == [None, None, handle, handle, None, handle]
