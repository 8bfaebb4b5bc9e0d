"""Only the holder of a call's lease writes down what became of it."""

from ringback.domain.call import CallOutcome, failed_completion
from tests.support.calls import wake
from tests.support.driving import a_leased_call, driven, run, take_lease
from tests.support.engine import Engine, Holding, ScriptedUpstreams


async def test_a_lost_lease_calls_the_upstream_off_and_writes_nothing(engine: Engine) -> None:
    call, tool = await a_leased_call(engine), Holding()
    drive = engine.drive(call, ScriptedUpstreams(tool))

    async with driven(drive):
        await tool.until_inside(1)
        taken = await take_lease(engine, call)
        drive.abandon_lease()

    assert len(tool.called_off) == 1
    assert await engine.call(call) == taken
    assert await engine.events() == []


async def test_a_lease_that_was_lost_unnoticed_writes_nothing(engine: Engine) -> None:
    call, tool = await a_leased_call(engine), Holding()

    async with driven(engine.drive(call, ScriptedUpstreams(tool))):
        await tool.until_inside(1)
        taken = await take_lease(engine, call)
        tool.release.set()

    assert await engine.call(call) == taken
    assert await engine.result(call) is None
    assert await engine.events() == []


async def test_a_call_that_somebody_else_leased_is_not_dispatched(engine: Engine) -> None:
    call, upstreams = await a_leased_call(engine), ScriptedUpstreams()
    taken = await take_lease(engine, call)

    await run(engine.drive(call, upstreams))

    assert upstreams.called == []
    assert await engine.call(call) == taken


async def test_a_call_that_somebody_else_ended_is_called_off(engine: Engine) -> None:
    call, tool = await a_leased_call(engine), Holding()
    lost = failed_completion(CallOutcome.UNKNOWN, "Its runner was thought to be dead.")

    async with driven(engine.drive(call, ScriptedUpstreams(tool))):
        await tool.until_inside(1)
        running = await engine.call(call)
        await engine.store.write(lambda tx: engine.recorder.finish_call(tx, running, lost, lease_token=None))
        await wake(engine, call)

    assert len(tool.called_off) == 1
    assert (await engine.call(call)).outcome is CallOutcome.UNKNOWN
    assert len(await engine.events()) == 1
