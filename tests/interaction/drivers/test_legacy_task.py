"""Calls that an upstream of 2025-11-25 runs as tasks, which the client asks for and finds again by session and id."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from mcp import MCPError

from ringback.domain.call import CallPhase, CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.runner import execution
from ringback.upstreams.config import Isolation
from tests.support.calls import (
    answer_call,
    insert_call_to,
    make_call_to,
    notify_execution,
    request_cancel,
    running_runner,
    running_with_app,
    wait_for_call,
    wait_for_handle,
    wait_for_input_request,
)
from tests.support.clock import OffsetClock
from tests.support.engine import Engine
from tests.support.legacy_upstream import ACCEPTED_ANSWER, LegacyUpstream
from tests.support.upstreams import Context, make_http_config, serving

ERROR = MCPError(-32042, "not today", {"retry": False})


@pytest.mark.parametrize("tool", ["long", "either"])
async def test_a_tool_that_may_run_as_a_task_does(engine: Engine, tool: str) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, tool)

    async with running_with_app(engine, stage.app(), drain_seconds=0.01):
        task = await stage.wait_for_task()
        task.message = "half way"
        running = await wait_for_call(engine, call, lambda found: found.progress is not None)
        task.end_task()
        (ended,) = await engine.wait_until_final(call)

    assert running.handle is not None
    session = {"id": stage.sessions[-1], "protocol_version": "2025-11-25"}
    assert (running.handle.driver, running.handle.data) == ("legacy_task", {"task_id": "task-1", "session": session})
    assert (ended.outcome, ended.progress and ended.progress.message) == (CallOutcome.RESULT, "half way")
    assert await engine.read_result(call) == b'{"content":[{"type":"text","text":"done"}]}'
    assert task.ttl >= 3600 * 1000
    assert stage.effects == [tool]


async def test_progress_of_a_task_is_reported_after_the_response_that_created_it(engine: Engine) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "long")

    async with running_with_app(engine, stage.app(), drain_seconds=0.01):
        task = await stage.wait_for_task()
        await wait_for_handle(engine, call)
        task.progress = 3
        running = await wait_for_call(engine, call, lambda found: found.progress is not None)
        task.end_task()
        await engine.wait_until_final(call)

    assert running.progress is not None
    assert running.progress.progress == 3


@pytest.mark.requirement("R33")
async def test_a_task_that_fastmcp_2_names_in_an_empty_result_is_followed_to_its_result(engine: Engine) -> None:
    stage, call = LegacyUpstream(draft=True), await insert_call_to(engine, "either")

    async with running_with_app(engine, stage.app(), drain_seconds=0.01):
        (await stage.wait_for_task()).end_task()
        (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is CallOutcome.RESULT
    assert await engine.read_result(call) == b'{"content":[{"type":"text","text":"done"}]}'


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    ("status", "result", "error", "outcome"),
    [
        ("completed", None, None, CallOutcome.RESULT),
        ("failed", {"content": [], "isError": True}, None, CallOutcome.TOOL_ERROR),
        ("failed", None, ERROR, CallOutcome.UPSTREAM_ERROR),
        ("cancelled", None, None, CallOutcome.CANCELLED),
    ],
)
async def test_a_task_ends_as_its_upstream_says(
    engine: Engine, status: str, result: dict[str, object] | None, error: MCPError | None, outcome: CallOutcome
) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "long")

    async with running_with_app(engine, stage.app(), drain_seconds=0.01):
        (await stage.wait_for_task()).end_task(status, result, error)
        (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is outcome
    if error is not None:
        assert ended.error == {"code": -32042, "message": "not today", "data": {"retry": False}}


class ConfusedUpstream(LegacyUpstream):
    """Answers requests about a task with another client's task, until it is `cleared`."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.cleared = False
        self.confusions = 0
        self._method = method

    async def _tasks(self, ctx: Context, call_next: Callable[[Context], Awaitable[Any]]) -> Any:
        response = await super()._tasks(ctx, call_next)
        if self.cleared or ctx.method != self._method:
            return response
        self.confusions += 1
        self._moved.set()
        if ctx.method == "tasks/get":
            return {**response, "taskId": "theirs", "status": "cancelled"}
        related = {"io.modelcontextprotocol/related-task": {"taskId": "theirs"}}
        return {"content": [{"type": "text", "text": "theirs"}], "_meta": related}


@pytest.mark.requirement("R33")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result"])
async def test_a_request_that_is_answered_with_another_task_is_sent_again(engine: Engine, method: str) -> None:
    stage, call = ConfusedUpstream(method), make_call_to(engine, "long")
    await engine.insert_calls(call)

    async with running_with_app(engine, stage.app(), drain_seconds=0.01):
        (await stage.wait_for_task()).end_task()
        await stage.wait_until(lambda: stage.confusions >= 3)
        between = await engine.read_call(call)
        stage.cleared = True
        (ended,) = await engine.wait_until_final(call)

    assert between.status is CallStatus.WORKING
    assert ended.outcome is CallOutcome.RESULT
    assert await engine.read_result(call) == b'{"content":[{"type":"text","text":"done"}]}'


async def test_a_tool_that_runs_as_no_task_is_called_plainly(engine: Engine) -> None:
    stage, call = LegacyUpstream(), make_call_to(engine, "work")
    stage.release.set()
    await engine.insert_calls(call)

    async with running_with_app(engine, stage.app(), drain_seconds=0.01):
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, stage.tasks) == (CallOutcome.RESULT, {})


# -- going on after a restart -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("R09")
@pytest.mark.requirement("R35")
async def test_the_next_process_finds_the_task_in_its_session(engine: Engine) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "long")

    async with serving(stage.app()) as server:
        config = make_http_config(server.url)
        async with running_runner(engine, config, drain_seconds=0.01):
            task = await stage.wait_for_task()
            await wait_for_handle(engine, call)
        between, polls = await engine.read_call(call), task.polls
        async with running_runner(engine, config, drain_seconds=0.01):
            await stage.wait_until(lambda: task.polls > polls)
            task.end_task()
            (ended,) = await engine.wait_until_final(call)

    assert (between.phase, between.status) == (CallPhase.QUEUED, CallStatus.WORKING)
    assert (ended.outcome, ended.runs, stage.effects, task.cancels) == (CallOutcome.RESULT, 1, ["long"], 0)


@pytest.mark.parametrize(("bound", "outcome"), [(False, CallOutcome.RESULT), (True, CallOutcome.UNKNOWN)])
async def test_a_task_whose_session_ended_is_read_in_a_new_session(
    engine: Engine, *, bound: bool, outcome: CallOutcome
) -> None:
    stage, call = LegacyUpstream(bound=bound), await insert_call_to(engine, "long")

    async with serving(stage.app()) as server:
        config = make_http_config(server.url)
        async with running_runner(engine, config, drain_seconds=0.01):
            task = await stage.wait_for_task()
            await wait_for_handle(engine, call)
        await stage.end_session(server.url)
        task.end_task()
        async with running_runner(engine, config, drain_seconds=0.01):
            (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, stage.effects) == (outcome, ["long"])


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(("bound", "outcome"), [(False, CallOutcome.RESULT), (True, CallOutcome.UNKNOWN)])
async def test_a_task_whose_session_ended_while_idle_is_read_in_a_new_session(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, *, bound: bool, outcome: CallOutcome
) -> None:
    monkeypatch.setattr(execution, "RECONNECT_RETRY_SECONDS", 0.05)
    stage, call = LegacyUpstream(bound=bound), await insert_call_to(engine, "long")

    async with running_with_app(engine, stage.app(), drain_seconds=0.01) as server:
        task = await stage.wait_for_task()
        await wait_for_handle(engine, call)
        await stage.end_session(server.url)
        task.end_task()
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, stage.effects) == (outcome, ["long"])


async def test_a_task_that_its_upstream_has_forgotten_may_have_run(engine: Engine) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "long")

    async with running_with_app(engine, stage.app(), drain_seconds=0.01):
        await stage.wait_for_task()
        await wait_for_handle(engine, call)
        stage.tasks.clear()
        (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is CallOutcome.UNKNOWN
    assert ended.error is not None
    assert "no longer reports the task" in ended.error["message"]


# -- cancelling, and the deadline -------------------------------------------------------------------------------------------


async def test_cancelling_ends_the_task(engine: Engine) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "long")

    async with running_with_app(engine, stage.app(), drain_seconds=0.01):
        task = await stage.wait_for_task()
        await wait_for_handle(engine, call)
        await request_cancel(engine, call)
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, task.status, task.cancels) == (CallOutcome.CANCELLED, "cancelled", 1)


async def test_a_cancellation_that_comes_too_late_changes_nothing(engine: Engine) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "long")

    async with serving(stage.app()) as server:
        config = make_http_config(server.url)
        async with running_runner(engine, config, drain_seconds=0.01):
            task = await stage.wait_for_task()
            await wait_for_handle(engine, call)
        task.end_task()
        await request_cancel(engine, call)
        async with running_runner(engine, config, drain_seconds=0.01):
            (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, ended.cancel_requested) == (CallOutcome.RESULT, True)


async def test_a_deadline_cancels_the_task_and_times_the_call_out(engine: Engine, clock: OffsetClock) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "long")

    async with running_with_app(engine, stage.app(), drain_seconds=0.01):
        task = await stage.wait_for_task()
        await wait_for_handle(engine, call)
        clock.advance(2 * 3600)
        await notify_execution(engine, call)
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, task.status) == (CallOutcome.TIMED_OUT, "cancelled")


# -- questions --------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R32")
async def test_a_tasks_question_comes_with_its_result_and_is_answered(engine: Engine) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "long")

    async with serving(stage.app()) as server:
        config = replace(make_http_config(server.url), isolation=Isolation.CALL)
        async with running_runner(engine, config, drain_seconds=0.01):
            task = await stage.wait_for_task()
            task.status = "input_required"
            asked = await wait_for_input_request(engine, call)
            await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER})
            await stage.wait_until(lambda: stage.answers)
            task.end_task()
            (ended,) = await engine.wait_until_final(call)

    assert asked.input_requests["r1.1"].params["message"] == "Really?"
    assert stage.answers[0].content == {"sure": True}
    assert ended.outcome is CallOutcome.RESULT


@pytest.mark.requirement("R32")
async def test_a_tasks_question_is_answered_by_the_next_process(engine: Engine) -> None:
    stage, call = LegacyUpstream(), await insert_call_to(engine, "long")

    async with serving(stage.app()) as server:
        config = replace(make_http_config(server.url), isolation=Isolation.CALL)
        async with running_runner(engine, config, drain_seconds=0.01):
            task = await stage.wait_for_task()
            task.status = "input_required"
            await wait_for_input_request(engine, call)
        await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER})
        async with running_runner(engine, config, drain_seconds=0.01):
            await stage.wait_until(lambda: stage.answers)
            task.end_task()
            (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, stage.answers[0].content) == (CallOutcome.RESULT, {"sure": True})
