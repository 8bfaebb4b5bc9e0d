"""Only the lease holder of a call writes its outcome."""

from ringback.domain.call_outcome import CallOutcome, failed_completion
from tests.support.calls import notify_execution
from tests.support.engine import BlockingTool, Engine, ScriptedUpstreams
from tests.support.executions import executing, lease_new_call, replace_lease, run_execution


async def test_a_lost_lease_cancels_upstream_and_writes_nothing(engine: Engine) -> None:
    call, tool = await lease_new_call(engine), BlockingTool()
    execution = engine.make_execution(call, ScriptedUpstreams(tool))

    async with executing(execution):
        await tool.wait_until_inside(1)
        taken = await replace_lease(engine, call)
        execution.abandon_lease()

    assert len(tool.cancelled) == 1
    assert await engine.read_call(call) == taken
    assert await engine.read_events() == []


async def test_an_execution_with_an_outdated_token_writes_nothing(engine: Engine) -> None:
    call, tool = await lease_new_call(engine), BlockingTool()

    async with executing(engine.make_execution(call, ScriptedUpstreams(tool))):
        await tool.wait_until_inside(1)
        taken = await replace_lease(engine, call)
        tool.release.set()

    assert await engine.read_call(call) == taken
    assert await engine.read_result(call) is None
    assert await engine.read_events() == []


async def test_a_call_leased_by_another_runner_is_not_dispatched(engine: Engine) -> None:
    call, upstreams = await lease_new_call(engine), ScriptedUpstreams()
    taken = await replace_lease(engine, call)

    await run_execution(engine.make_execution(call, upstreams))

    assert upstreams.called == []
    assert await engine.read_call(call) == taken


async def test_a_call_ended_by_another_process_is_cancelled(engine: Engine) -> None:
    call, tool = await lease_new_call(engine), BlockingTool()
    lost = failed_completion(CallOutcome.UNKNOWN, "Its runner was thought to be dead.")

    async with executing(engine.make_execution(call, ScriptedUpstreams(tool))):
        await tool.wait_until_inside(1)
        running = await engine.read_call(call)
        await engine.store.write(lambda tx: engine.recorder.finish_call(tx, running, lost, lease_token=None))
        await notify_execution(engine, call)

    assert len(tool.cancelled) == 1
    assert (await engine.read_call(call)).outcome is CallOutcome.UNKNOWN
    assert len(await engine.read_events()) == 1
