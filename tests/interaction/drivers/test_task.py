"""Calls that an upstream runs as tasks: followed to their end, whatever happens on the way."""

import pytest

from ringback.domain.call import CallOutcome, CallPhase, CallStatus
from ringback.domain.event import EventName
from ringback.runner.drivers import followed
from tests.support.calls import (
    a_call_to,
    answer,
    ask_to_cancel,
    running_against,
    until_asked,
    until_call,
    until_kept,
    wake,
)
from tests.support.clock import ShiftedClock
from tests.support.engine import Engine
from tests.support.task_stage import TASKS, YES, TaskStage
from tests.support.upstreams import http_config, opened, serving, until_state


@pytest.mark.parametrize("listening", [False, True], ids=["polling", "listening"])
async def test_a_task_is_followed_to_its_result(engine: Engine, *, listening: bool) -> None:
    stage, call = TaskStage(listening=listening), a_call_to(engine, "work")
    await engine.queue(call)

    async with running_against(engine, stage.app()):
        task = await stage.task(1)
        await stage.until(lambda: stage.count("tasks/get") >= 1)
        kept = await engine.call(call)
        task.complete("done")
        (ended,) = await engine.until_final(call)

    assert kept.handle is not None
    assert (kept.handle.driver, kept.handle.data, kept.status) == ("task", {"task_id": "task-1"}, CallStatus.WORKING)
    assert (ended.outcome, ended.runs, ended.handle) == (CallOutcome.RESULT, 1, kept.handle)
    assert b"done" in (await engine.result(call) or b"")
    assert stage.effects == ["work"]


async def test_an_upstream_that_tells_by_itself_is_hardly_asked(engine: Engine) -> None:
    stage, call = TaskStage(listening=True), a_call_to(engine, "work")
    await engine.queue(call)

    async with running_against(engine, stage.app()):
        task = await stage.task(1)
        await stage.until(lambda: stage.listeners == 1 and stage.count("tasks/get") == 1)
        for number in range(10):
            task.tell(status="working", statusMessage=f"step {number}")
        await until_call(engine, call, lambda found: found.progress is not None)
        task.complete("done")
        (ended,) = await engine.until_final(call)
        await stage.until(lambda: stage.listeners == 0)

    assert ended.progress is not None
    assert (ended.progress.progress, ended.progress.message) == (10, "step 9")
    assert stage.count("tasks/get") == 1


async def test_an_upstream_whose_stream_breaks_is_asked_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "POLL_SECONDS_DEFAULT", 0.1)
    stage, call = TaskStage(listening=True), a_call_to(engine, "work")
    await engine.queue(call)

    async with running_against(engine, stage.app()) as server:
        task = await stage.task(1)
        await stage.until(lambda: stage.listeners == 1)
        await server.kill()
        async with serving(stage.app(), port=server.port):
            task.complete("done")
            (ended,) = await engine.until_final(call)

    assert ended.outcome is CallOutcome.RESULT


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ({"status": "completed", "result": {"content": [], "isError": True}}, CallOutcome.TOOL_ERROR),
        ({"status": "failed", "error": {"code": -32042, "message": "no"}}, CallOutcome.UPSTREAM_ERROR),
        ({"status": "cancelled"}, CallOutcome.CANCELLED),
    ],
)
async def test_a_task_ends_as_its_upstream_says(engine: Engine, state: dict[str, object], outcome: CallOutcome) -> None:
    stage, call = TaskStage(), a_call_to(engine, "work")
    await engine.queue(call)

    async with running_against(engine, stage.app()):
        (await stage.task(1)).tell(**state)
        (ended,) = await engine.until_final(call)

    assert ended.outcome is outcome
    assert ended.error == state.get("error")


@pytest.mark.requirement("R33")
async def test_a_task_that_its_upstream_has_forgotten_may_have_run(engine: Engine) -> None:
    stage, call = TaskStage(), a_call_to(engine, "work")
    await engine.queue(call)

    async with running_against(engine, stage.app()):
        await stage.task(1)
        await until_kept(engine, call)
        stage.tasks.clear()
        (ended,) = await engine.until_final(call)

    assert ended.outcome is CallOutcome.UNKNOWN
    assert "no longer tells of the task" in (ended.error or {})["message"]


# -- going on after a restart -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("R35")
async def test_the_next_runner_goes_on_from_the_handle_and_its_upstream_notices_nothing(engine: Engine) -> None:
    stage, call = TaskStage(), a_call_to(engine, "work")
    await engine.queue(call)

    async with serving(stage.app()) as server, opened(http_config(server.url)) as upstreams:
        async with engine.running(upstreams):
            task = await stage.task(1)
            await until_kept(engine, call)
        between = await engine.call(call)
        task.complete("done")
        async with engine.running(upstreams):
            (ended,) = await engine.until_final(call)

    assert (between.phase, between.status, between.lease_token) == (CallPhase.QUEUED, CallStatus.WORKING, None)
    assert (ended.outcome, ended.runs) == (CallOutcome.RESULT, 1)
    assert (stage.effects, task.cancels) == (["work"], 0)


async def test_a_task_outlives_the_absence_of_its_upstream(engine: Engine) -> None:
    stage, call = TaskStage(), a_call_to(engine, "work")

    async with (
        serving(stage.app()) as server,
        opened(http_config(server.url), patience_seconds=0.05) as upstreams,
        engine.running(upstreams),
    ):
        await until_state(upstreams, "ready")
        await engine.queue(call)
        task = await stage.task(1)
        await until_kept(engine, call)
        await server.kill()
        asked = stage.count("tasks/get")
        async with serving(stage.app(), port=server.port):
            await stage.until(lambda: stage.count("tasks/get") > asked)
            task.complete("done")
            (ended,) = await engine.until_final(call)

    assert (ended.outcome, stage.effects) == (CallOutcome.RESULT, ["work"])


# -- questions --------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R32")
@pytest.mark.parametrize("listening", [False, True], ids=["polling", "listening"])
async def test_a_tasks_questions_are_answered_one_by_one(engine: Engine, *, listening: bool) -> None:
    stage, call = TaskStage(listening=listening), a_call_to(engine, "work")
    await engine.queue(call)

    async with running_against(engine, stage.app()):
        task = await stage.task(1)
        task.ask("name", "age")
        asked = await until_asked(engine, call)
        first = await answer(engine, call, {"r1.1": YES, "r9.9": YES})
        await stage.until(lambda: task.answers == {"name": YES})
        left = await engine.call(call)
        await answer(engine, call, {"r1.1": YES, "r1.2": {"action": "decline"}})
        await stage.until(lambda: len(task.answers) == 2)
        task.complete("done")
        (ended,) = await engine.until_final(call)

    assert {key: request.name for key, request in asked.input_requests.items()} == {"r1.1": "name", "r1.2": "age"}
    assert (first.accepted, first.ignored) == (["r1.1"], ["r9.9"])
    assert (left.status, list(left.input_requests)) == (CallStatus.INPUT_REQUIRED, ["r1.2"])
    assert task.answers["age"] == {"action": "decline"}
    assert ended.outcome is CallOutcome.RESULT
    names = [event.name for event in await engine.events()]
    assert names == [EventName.CALL_INPUT_REQUIRED, EventName.CALL_FINISHED]


@pytest.mark.requirement("R32")
async def test_a_task_is_answered_after_a_restart(engine: Engine) -> None:
    stage, call = TaskStage(), a_call_to(engine, "work")
    await engine.queue(call)

    async with serving(stage.app()) as server, opened(http_config(server.url)) as upstreams:
        async with engine.running(upstreams):
            task = await stage.task(1)
            task.ask("name")
            await until_asked(engine, call)
        told = await answer(engine, call, {"r1.1": YES})
        async with engine.running(upstreams):
            await stage.until(lambda: task.answers == {"name": YES})
            task.ask("name", "age")
            again = await until_asked(engine, call)
            await answer(engine, call, {"r2.1": YES})
            await stage.until(lambda: len(task.answers) == 2)
            task.complete("done")
            await engine.until_final(call)

    assert (told.call.status, told.call.phase) == (CallStatus.WORKING, CallPhase.QUEUED)
    assert {key: request.name for key, request in again.input_requests.items()} == {"r2.1": "age"}


async def test_a_question_that_the_upstream_takes_back_is_not_asked_any_more(engine: Engine) -> None:
    stage, call = TaskStage(), a_call_to(engine, "work")
    await engine.queue(call)

    async with running_against(engine, stage.app()):
        task = await stage.task(1)
        task.ask("name")
        await until_asked(engine, call)
        task.tell(status="working")
        back = await until_call(engine, call, lambda found: found.status is CallStatus.WORKING)
        late = await answer(engine, call, {"r1.1": YES})
        task.complete("done")
        await engine.until_final(call)

    assert back.input_requests == {}
    assert (late.accepted, late.ignored) == ([], ["r1.1"])


@pytest.mark.requirement("R32")
@pytest.mark.parametrize("accepts_input", [True, False])
async def test_elicitation_is_offered_only_for_a_starter_who_can_answer(engine: Engine, *, accepts_input: bool) -> None:
    stage, call = TaskStage(), a_call_to(engine, "work", accepts_input=accepts_input)
    await engine.queue(call)

    async with running_against(engine, stage.app()):
        task = await stage.task(1)
        if accepts_input:
            task.complete("done")
        else:
            task.ask("name")
        (ended,) = await engine.until_final(call)

    (declared,) = stage.declared
    assert declared.extensions == {TASKS: {}}
    assert (declared.elicitation is not None) == accepts_input
    assert ended.outcome is (CallOutcome.RESULT if accepts_input else CallOutcome.UPSTREAM_ERROR)
    assert task.cancels == (0 if accepts_input else 1)


async def test_questions_may_come_before_the_task_and_in_it(engine: Engine) -> None:
    stage, call = TaskStage(), a_call_to(engine, "confirm_then_work")
    await engine.queue(call)

    async with running_against(engine, stage.app()):
        parked = await until_asked(engine, call)
        await answer(engine, call, {"r1.1": YES})
        task = await stage.task(1)
        task.ask("sure")
        asked = await until_call(engine, call, lambda found: "r2.1" in found.input_requests)
        await answer(engine, call, {"r2.1": {"action": "cancel"}})
        await stage.until(lambda: bool(task.answers))
        task.complete("done")
        (ended,) = await engine.until_final(call)

    assert parked.phase is CallPhase.PARKED
    assert asked.phase is CallPhase.RUNNING
    assert task.answers == {"sure": {"action": "cancel"}}
    assert (ended.outcome, ended.runs) == (CallOutcome.RESULT, 1)


# -- cancelling, and deadlines ----------------------------------------------------------------------------------------------


async def test_cancelling_reaches_the_task_which_tells_its_end(engine: Engine) -> None:
    stage, call = TaskStage(poll_ms=60_000), a_call_to(engine, "work")
    await engine.queue(call)

    async with running_against(engine, stage.app()):
        task = await stage.task(1)
        await stage.until(lambda: stage.count("tasks/get") == 1)
        await ask_to_cancel(engine, call)
        await ask_to_cancel(engine, call)
        (ended,) = await engine.until_final(call)

    assert (ended.outcome, ended.cancel_requested) == (CallOutcome.CANCELLED, True)
    assert task.cancels == 1


@pytest.mark.requirement("R33")
async def test_a_task_that_ignores_its_cancellation_completes_the_call_truthfully(engine: Engine) -> None:
    stage, call = TaskStage(), a_call_to(engine, "work")
    stage.obeys = False
    await engine.queue(call)

    async with running_against(engine, stage.app()):
        task = await stage.task(1)
        await until_kept(engine, call)
        await ask_to_cancel(engine, call)
        await stage.until(lambda: task.cancels == 1)
        between = await engine.call(call)
        task.complete("done all the same")
        (ended,) = await engine.until_final(call)

    assert (between.status, between.cancel_requested) == (CallStatus.WORKING, True)
    assert (ended.outcome, ended.cancel_requested) == (CallOutcome.RESULT, True)


async def test_a_cancellation_that_came_between_two_runners_reaches_the_task(engine: Engine) -> None:
    stage, call = TaskStage(), a_call_to(engine, "work")
    await engine.queue(call)

    async with serving(stage.app()) as server, opened(http_config(server.url)) as upstreams:
        async with engine.running(upstreams):
            task = await stage.task(1)
            await until_kept(engine, call)
        await ask_to_cancel(engine, call)
        async with engine.running(upstreams):
            (ended,) = await engine.until_final(call)

    assert (ended.outcome, task.cancels) == (CallOutcome.CANCELLED, 1)


@pytest.mark.requirement("R33")
async def test_a_deadline_tells_the_task_to_stop_and_times_the_call_out(engine: Engine, clock: ShiftedClock) -> None:
    stage, call = TaskStage(), a_call_to(engine, "work")
    stage.obeys = False
    await engine.queue(call)

    async with running_against(engine, stage.app()):
        task = await stage.task(1)
        await until_kept(engine, call)
        clock.advance(3600)
        await wake(engine, call)
        (ended,) = await engine.until_final(call)

    assert (ended.outcome, task.cancels) == (CallOutcome.TIMED_OUT, 1)
