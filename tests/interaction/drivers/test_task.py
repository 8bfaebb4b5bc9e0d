"""Calls that an upstream runs as tasks: followed to their end, whatever happens on the way."""

import pytest

from ringback.domain import inputs
from ringback.domain.call import CallPhase, CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.event import EventName
from ringback.protocol import tasks as followed
from tests.support.calls import (
    answer_call,
    insert_call_to,
    make_call_to,
    notify_execution,
    request_cancel,
    running_with_app,
    wait_for_call,
    wait_for_handle,
    wait_for_input_request,
)
from tests.support.clock import OffsetClock
from tests.support.engine import Engine
from tests.support.task_upstream import ACCEPTED_ANSWER, TASKS_EXTENSION, TaskUpstream, UpstreamTask, text_result
from tests.support.upstreams import make_http_config, open_upstreams, serving, wait_for_state


@pytest.mark.parametrize("listening", [False, True], ids=["polling", "listening"])
async def test_a_task_is_followed_to_its_result(engine: Engine, *, listening: bool) -> None:
    stage, call = TaskUpstream(listening=listening), await insert_call_to(engine, "work")

    async with running_with_app(engine, stage.app()):
        task = await stage.wait_for_task(1)
        await stage.wait_until(lambda: stage.count_requests("tasks/get") >= 1)
        kept = await engine.read_call(call)
        task.complete_task("done")
        (ended,) = await engine.wait_until_final(call)

    assert kept.handle is not None
    assert (kept.handle.driver, kept.handle.data, kept.status) == ("task", {"task_id": "task-1"}, CallStatus.WORKING)
    assert (ended.outcome, ended.runs, ended.handle) == (CallOutcome.RESULT, 1, kept.handle)
    assert b"done" in (await engine.read_result(call) or b"")
    assert stage.side_effects == ["work"]


async def test_an_upstream_that_sends_task_notifications_is_rarely_polled(engine: Engine) -> None:
    stage, call = TaskUpstream(listening=True), await insert_call_to(engine, "work")

    async with running_with_app(engine, stage.app()):
        task = await stage.wait_for_task(1)
        await stage.wait_until(lambda: stage.listener_count == 1 and stage.count_requests("tasks/get") == 1)
        for number in range(10):
            task.set_state(status="working", statusMessage=f"step {number}")
        await wait_for_call(engine, call, lambda found: found.progress is not None)
        task.complete_task("done")
        (ended,) = await engine.wait_until_final(call)
        await stage.wait_until(lambda: stage.listener_count == 0)

    assert ended.progress is not None
    assert (ended.progress.progress, ended.progress.message) == (10, "step 9")
    assert stage.count_requests("tasks/get") == 1


async def test_an_upstream_whose_notification_stream_breaks_is_polled_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "POLL_SECONDS_DEFAULT", 0.1)
    stage, call = TaskUpstream(listening=True), await insert_call_to(engine, "work")

    async with running_with_app(engine, stage.app()) as server:
        task = await stage.wait_for_task(1)
        await stage.wait_until(lambda: stage.listener_count == 1)
        await server.kill_server()
        async with serving(stage.app(), port=server.port):
            task.complete_task("done")
            (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is CallOutcome.RESULT


class BroadcastingUpstream(TaskUpstream):
    """Sends the state of each task to all clients that listen to any task."""

    def publish_task(self, task: UpstreamTask) -> None:
        for queue in self._listeners:
            queue.put_nowait(self._task_json(task))


@pytest.mark.requirement("R33")
async def test_a_call_never_ends_with_the_result_of_another_task(engine: Engine) -> None:
    stage, calls = BroadcastingUpstream(listening=True), [make_call_to(engine, "work") for _ in range(2)]
    await engine.insert_calls(*calls)

    async with running_with_app(engine, stage.app()):
        await stage.wait_for_task(2)
        await stage.wait_until(lambda: stage.listener_count == 2 and stage.count_requests("tasks/get") == 2)
        for task in stage.tasks.values():
            task.complete_task(f"the result of {task.id}")
        for ended in await engine.wait_until_final(*calls):
            assert ended.handle is not None
            text = f"the result of {ended.handle.data['task_id']}".encode()
            assert text in (await engine.read_result(ended) or b"")


@pytest.mark.requirement("R33")
async def test_a_poll_that_is_answered_with_another_task_is_sent_again(engine: Engine) -> None:
    stage, call = TaskUpstream(), make_call_to(engine, "work")
    await engine.insert_calls(call)

    async with running_with_app(engine, stage.app()):
        task = await stage.wait_for_task(1)
        task.set_state(taskId="task-of-another-client", status="completed", result=text_result("theirs"))
        polls = stage.count_requests("tasks/get")
        await stage.wait_until(lambda: stage.count_requests("tasks/get") >= polls + 3)
        between = await engine.read_call(call)
        task.complete_task("ours")
        (ended,) = await engine.wait_until_final(call)

    assert between.status is CallStatus.WORKING
    assert ended.outcome is CallOutcome.RESULT
    assert b"ours" in (await engine.read_result(call) or b"")


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
    stage, call = TaskUpstream(), await insert_call_to(engine, "work")

    async with running_with_app(engine, stage.app()):
        (await stage.wait_for_task(1)).set_state(**state)
        (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is outcome
    assert ended.error == state.get("error")


@pytest.mark.requirement("R33")
async def test_a_task_that_its_upstream_has_forgotten_may_have_run(engine: Engine) -> None:
    stage, call = TaskUpstream(), await insert_call_to(engine, "work")

    async with running_with_app(engine, stage.app()):
        await stage.wait_for_task(1)
        await wait_for_handle(engine, call)
        stage.tasks.clear()
        (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is CallOutcome.UNKNOWN
    assert "no longer reports the task" in (ended.error or {})["message"]


# -- going on after a restart -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("R35")
async def test_the_next_runner_goes_on_from_the_handle_and_its_upstream_notices_nothing(engine: Engine) -> None:
    stage, call = TaskUpstream(), await insert_call_to(engine, "work")

    async with serving(stage.app()) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        async with engine.running_runner(upstreams):
            task = await stage.wait_for_task(1)
            await wait_for_handle(engine, call)
        between = await engine.read_call(call)
        task.complete_task("done")
        async with engine.running_runner(upstreams):
            (ended,) = await engine.wait_until_final(call)

    assert (between.phase, between.status, between.lease_token) == (CallPhase.QUEUED, CallStatus.WORKING, None)
    assert (ended.outcome, ended.runs) == (CallOutcome.RESULT, 1)
    assert (stage.side_effects, task.cancels) == (["work"], 0)


async def test_a_task_outlives_the_absence_of_its_upstream(engine: Engine) -> None:
    stage, call = TaskUpstream(), make_call_to(engine, "work")

    async with (
        serving(stage.app()) as server,
        open_upstreams(make_http_config(server.url), patience_seconds=0.05) as upstreams,
        engine.running_runner(upstreams),
    ):
        await wait_for_state(upstreams, "ready")
        await engine.insert_calls(call)
        task = await stage.wait_for_task(1)
        await wait_for_handle(engine, call)
        await server.kill_server()
        asked = stage.count_requests("tasks/get")
        async with serving(stage.app(), port=server.port):
            await stage.wait_until(lambda: stage.count_requests("tasks/get") > asked)
            task.complete_task("done")
            (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, stage.side_effects) == (CallOutcome.RESULT, ["work"])


# -- questions --------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R32")
@pytest.mark.parametrize("listening", [False, True], ids=["polling", "listening"])
async def test_a_tasks_questions_are_answered_one_by_one(engine: Engine, *, listening: bool) -> None:
    stage, call = TaskUpstream(listening=listening), await insert_call_to(engine, "work")

    async with running_with_app(engine, stage.app()):
        task = await stage.wait_for_task(1)
        task.request_input("name", "age")
        asked = await wait_for_input_request(engine, call)
        first = await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER, "r9.9": ACCEPTED_ANSWER})
        await stage.wait_until(lambda: task.answers == {"name": ACCEPTED_ANSWER})
        left = await engine.read_call(call)
        await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER, "r1.2": {"action": "decline"}})
        await stage.wait_until(lambda: len(task.answers) == 2)
        task.complete_task("done")
        (ended,) = await engine.wait_until_final(call)

    assert {key: request.name for key, request in asked.input_requests.items()} == {"r1.1": "name", "r1.2": "age"}
    assert (first.accepted, first.ignored) == (["r1.1"], ["r9.9"])
    assert (left.status, list(left.input_requests)) == (CallStatus.INPUT_REQUIRED, ["r1.2"])
    assert task.answers["age"] == {"action": "decline"}
    assert ended.outcome is CallOutcome.RESULT
    names = [event.name for event in await engine.read_events()]
    assert names == [EventName.CALL_INPUT_REQUIRED, EventName.CALL_FINISHED]


@pytest.mark.requirement("R32")
async def test_a_task_is_answered_after_a_restart(engine: Engine) -> None:
    stage, call = TaskUpstream(), await insert_call_to(engine, "work")

    async with serving(stage.app()) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        async with engine.running_runner(upstreams):
            task = await stage.wait_for_task(1)
            task.request_input("name")
            await wait_for_input_request(engine, call)
        answered = await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER})
        async with engine.running_runner(upstreams):
            await stage.wait_until(lambda: task.answers == {"name": ACCEPTED_ANSWER})
            task.request_input("name", "age")
            again = await wait_for_input_request(engine, call)
            await answer_call(engine, call, {"r2.1": ACCEPTED_ANSWER})
            await stage.wait_until(lambda: len(task.answers) == 2)
            task.complete_task("done")
            await engine.wait_until_final(call)

    assert (answered.call.status, answered.call.phase) == (CallStatus.WORKING, CallPhase.QUEUED)
    assert {key: request.name for key, request in again.input_requests.items()} == {"r2.1": "age"}


async def test_an_input_request_that_the_upstream_withdraws_is_removed(engine: Engine) -> None:
    stage, call = TaskUpstream(), await insert_call_to(engine, "work")

    async with running_with_app(engine, stage.app()):
        task = await stage.wait_for_task(1)
        task.request_input("name")
        await wait_for_input_request(engine, call)
        task.set_state(status="working")
        back = await wait_for_call(engine, call, lambda found: found.status is CallStatus.WORKING)
        late = await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER})
        task.complete_task("done")
        await engine.wait_until_final(call)

    assert back.input_requests == {}
    assert (late.accepted, late.ignored) == ([], ["r1.1"])


@pytest.mark.requirement("R32")
async def test_a_task_that_asks_without_end_is_cancelled(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may ask another question at every poll, and each is an event with its callbacks."""
    monkeypatch.setattr(inputs, "INPUT_ROUNDS_MAX", 2)
    stage, call = TaskUpstream(), make_call_to(engine, "work")
    await engine.insert_calls(call)

    async with running_with_app(engine, stage.app()):
        task = await stage.wait_for_task(1)
        for number in (1, 2):
            task.request_input(f"question {number}")
            await wait_for_call(engine, call, lambda found, key=f"r{number}.1": key in found.input_requests)
        task.request_input("question 3")
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, task.cancels) == (CallOutcome.UPSTREAM_ERROR, 1)
    assert "asked for input more than 2 times" in (ended.error or {})["message"]


@pytest.mark.requirement("R32")
@pytest.mark.parametrize("accepts_input", [True, False])
async def test_elicitation_is_offered_only_for_a_starter_who_can_answer(engine: Engine, *, accepts_input: bool) -> None:
    stage, call = TaskUpstream(), await insert_call_to(engine, "work", accepts_input=accepts_input)

    async with running_with_app(engine, stage.app()):
        task = await stage.wait_for_task(1)
        if accepts_input:
            task.complete_task("done")
        else:
            task.request_input("name")
        (ended,) = await engine.wait_until_final(call)

    (declared,) = stage.declared
    assert declared.extensions == {TASKS_EXTENSION: {}}
    assert (declared.elicitation is not None) == accepts_input
    assert ended.outcome is (CallOutcome.RESULT if accepts_input else CallOutcome.UPSTREAM_ERROR)
    assert task.cancels == (0 if accepts_input else 1)


async def test_questions_may_come_before_the_task_and_in_it(engine: Engine) -> None:
    stage, call = TaskUpstream(), await insert_call_to(engine, "confirm_then_work")

    async with running_with_app(engine, stage.app()):
        parked = await wait_for_input_request(engine, call)
        await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER})
        task = await stage.wait_for_task(1)
        task.request_input("sure")
        asked = await wait_for_call(engine, call, lambda found: "r2.1" in found.input_requests)
        await answer_call(engine, call, {"r2.1": {"action": "cancel"}})
        await stage.wait_until(lambda: bool(task.answers))
        task.complete_task("done")
        (ended,) = await engine.wait_until_final(call)

    assert parked.phase is CallPhase.PARKED
    assert asked.phase is CallPhase.RUNNING
    assert task.answers == {"sure": {"action": "cancel"}}
    assert (ended.outcome, ended.runs) == (CallOutcome.RESULT, 1)


# -- cancelling, and deadlines ----------------------------------------------------------------------------------------------


async def test_cancelling_reaches_the_task_which_reports_its_end(engine: Engine) -> None:
    stage, call = TaskUpstream(poll_ms=60_000), await insert_call_to(engine, "work")

    async with running_with_app(engine, stage.app()):
        task = await stage.wait_for_task(1)
        await stage.wait_until(lambda: stage.count_requests("tasks/get") == 1)
        await request_cancel(engine, call)
        await request_cancel(engine, call)
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, ended.cancel_requested) == (CallOutcome.CANCELLED, True)
    assert task.cancels == 1


@pytest.mark.requirement("R33")
async def test_a_task_that_ignores_its_cancellation_completes_the_call_truthfully(engine: Engine) -> None:
    stage, call = TaskUpstream(), make_call_to(engine, "work")
    stage.honours_cancel = False
    await engine.insert_calls(call)

    async with running_with_app(engine, stage.app()):
        task = await stage.wait_for_task(1)
        await wait_for_handle(engine, call)
        await request_cancel(engine, call)
        await stage.wait_until(lambda: task.cancels == 1)
        between = await engine.read_call(call)
        task.complete_task("done all the same")
        (ended,) = await engine.wait_until_final(call)

    assert (between.status, between.cancel_requested) == (CallStatus.WORKING, True)
    assert (ended.outcome, ended.cancel_requested) == (CallOutcome.RESULT, True)


async def test_a_cancellation_that_came_between_two_runners_reaches_the_task(engine: Engine) -> None:
    stage, call = TaskUpstream(), await insert_call_to(engine, "work")

    async with serving(stage.app()) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        async with engine.running_runner(upstreams):
            task = await stage.wait_for_task(1)
            await wait_for_handle(engine, call)
        await request_cancel(engine, call)
        async with engine.running_runner(upstreams):
            (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, task.cancels) == (CallOutcome.CANCELLED, 1)


@pytest.mark.requirement("R33")
async def test_a_deadline_cancels_the_task_and_times_the_call_out(engine: Engine, clock: OffsetClock) -> None:
    stage, call = TaskUpstream(), make_call_to(engine, "work")
    stage.honours_cancel = False
    await engine.insert_calls(call)

    async with running_with_app(engine, stage.app()):
        task = await stage.wait_for_task(1)
        await wait_for_handle(engine, call)
        clock.advance(3600)
        await notify_execution(engine, call)
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, task.cancels) == (CallOutcome.TIMED_OUT, 1)
