"""The task driver over a session with scripted responses: invalid responses, and answers that the upstream rejects."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.call import Call, Handle
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.protocol import tasks as protocol_tasks
from ringback.protocol.errors import InvalidUpstreamResponse, ResponseLost, UpstreamError, UpstreamUnavailable
from ringback.protocol.sessions import NegotiatedProtocol
from ringback.protocol.tasks import CONSECUTIVE_ERRORS_MAX, TASK_ID_LENGTH_MAX
from ringback.runner.drivers.mrtr import MrtrDriver
from ringback.runner.drivers.plain import PlainDriver
from ringback.runner.drivers.selection import UnsupportedHandleDriver, select_driver
from ringback.runner.drivers.task import TaskDriver
from tests.support.clock import FakeClock
from tests.support.examples import CALL
from tests.support.limits import WAIT_SECONDS
from tests.support.recording_call_context import RecordingCallContext
from tests.support.scripted_sessions import TASKS_EXTENSION, Reply, ScriptedSession
from tests.support.task_upstream import ACCEPTED_ANSWER, QUESTION

HANDLE = Handle(driver="task", data={"task_id": "1"})
FOLLOWED_CALL = replace(CALL, handle=HANDLE, accepts_input=True)
DONE: dict[str, Any] = {"status": "completed", "result": {"content": []}}
WORKING: dict[str, Any] = {"status": "working"}
INPUT_REQUIRED_TASK: dict[str, Any] = {"status": "input_required", "inputRequests": {"name": QUESTION}}
ACK: dict[str, Any] = {"resultType": "complete"}
INVALID = UpstreamError({"code": -32602, "message": "no"})


async def run(call: Call, *replies: Reply) -> tuple[CallCompletion, RecordingCallContext, ScriptedSession]:
    context, session = RecordingCallContext(call), ScriptedSession(*replies)
    completion = await TaskDriver(clock=FakeClock()).run_call(session, context)
    assert isinstance(completion, CallCompletion)
    return completion, context, session


class SilentAtFirst(ScriptedSession):
    """A session whose first request of one method gets no response."""

    silent_method: str | None = "tasks/get"

    async def send_request(self, method: str, params: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        if method == self.silent_method:
            self.silent_method = None
            await asyncio.Event().wait()
        return await super().send_request(method, params, **options)


@pytest.mark.parametrize("task_id", [None, 7, "", "x" * (TASK_ID_LENGTH_MAX + 1)])
async def test_a_task_without_a_usable_task_id_is_an_upstream_error(task_id: object) -> None:
    completion, context, _ = await run(CALL, {"resultType": "task", "taskId": task_id, "status": "working"})

    assert (completion.outcome, context.saved_handles) == (CallOutcome.UPSTREAM_ERROR, [])


async def test_the_handle_is_saved_before_the_task_is_polled() -> None:
    _, context, session = await run(CALL, {"resultType": "task", "taskId": "1", "status": "working"}, DONE)

    assert context.saved_handles == [HANDLE]
    assert [method for method, _ in session.requests] == ["tools/call", "tasks/get"]


async def test_an_upstream_may_return_a_result_instead_of_a_task() -> None:
    completion, context, _ = await run(CALL, {"content": []})

    assert (completion.outcome, context.saved_handles) == (CallOutcome.RESULT, [])


async def test_a_task_whose_id_is_null_is_the_one_that_was_asked_for() -> None:
    completion, _, session = await run(FOLLOWED_CALL, {"taskId": None, **DONE})

    assert (completion.outcome, len(session.requests)) == (CallOutcome.RESULT, 1)


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    "unclear",
    [
        ResponseLost("lost"),
        InvalidUpstreamResponse("502"),
        UpstreamError({"code": -32603, "message": "busy"}),
        {"status": "asleep"},
        {"status": "completed"},
    ],
    ids=["lost", "no answer", "refused", "unknown status", "no result"],
)
async def test_a_poll_without_a_task_is_repeated(unclear: Reply) -> None:
    completion, _, _ = await run(FOLLOWED_CALL, *[unclear] * CONSECUTIVE_ERRORS_MAX, DONE)

    assert completion.outcome is CallOutcome.RESULT


@pytest.mark.requirement("R33")
async def test_a_task_outlives_any_number_of_error_pages_of_a_proxy() -> None:
    """Ten polls at the upstream's own interval may be a second: a result that was computed for days was lost."""
    completion, _, _ = await run(FOLLOWED_CALL, *[UpstreamUnavailable("502")] * (5 * CONSECUTIVE_ERRORS_MAX), DONE)

    assert completion.outcome is CallOutcome.RESULT


@pytest.mark.requirement("R33")
async def test_a_poll_without_any_response_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_tasks, "POLL_TIMEOUT_SECONDS", 0.01)
    context, session = RecordingCallContext(FOLLOWED_CALL), SilentAtFirst(DONE)

    completion = await asyncio.wait_for(TaskDriver(clock=FakeClock()).run_call(session, context), WAIT_SECONDS)

    assert isinstance(completion, CallCompletion)
    assert completion.outcome is CallOutcome.RESULT


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    "replies",
    [[UpstreamError({"code": code, "message": "no"})] for code in (-32602, -32601, -32021)] + [[{"status": "x"}]],
)
async def test_an_upstream_that_no_longer_knows_the_task_ends_the_call_as_unknown(replies: list[Reply]) -> None:
    completion, _, session = await run(FOLLOWED_CALL, *replies)

    assert completion.outcome is CallOutcome.UNKNOWN
    assert len(session.requests) == 1 or len(session.requests) > CONSECUTIVE_ERRORS_MAX


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    "error", [{}, {"code": "E1", "message": "no"}, {"code": True, "message": "no"}, {"message": "no"}, {"code": 1}]
)
async def test_a_task_that_failed_with_an_error_of_the_wrong_shape_has_an_error_that_clients_can_read(
    error: dict[str, Any],
) -> None:
    completion, _, _ = await run(FOLLOWED_CALL, {"status": "failed", "error": error})

    assert completion.outcome is CallOutcome.UPSTREAM_ERROR
    assert completion.error is not None
    assert (completion.error["code"], completion.error["data"]) == (-32603, {"outcome": "upstream_error"})
    assert "may have run" in completion.error["message"]


@pytest.mark.parametrize("asked", [{"name": "elicitation/create"}, {"name": None}])
async def test_questions_of_the_wrong_shape_are_an_upstream_error(asked: dict[str, Any]) -> None:
    completion, _, _ = await run(FOLLOWED_CALL, {"status": "input_required", "inputRequests": asked})

    assert completion.outcome is CallOutcome.UPSTREAM_ERROR


@pytest.mark.requirement("R33")
async def test_an_answer_without_any_response_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task was not polled any more, and its call timed out although there was a result."""
    monkeypatch.setattr(protocol_tasks, "POLL_TIMEOUT_SECONDS", 0.01)
    context = RecordingCallContext(FOLLOWED_CALL)
    await context.request_input({"name": QUESTION})
    context.answer_input({"r1.1": ACCEPTED_ANSWER})
    session = SilentAtFirst(INPUT_REQUIRED_TASK, INPUT_REQUIRED_TASK, ACK, DONE)
    session.silent_method = "tasks/update"

    completion = await asyncio.wait_for(TaskDriver(clock=FakeClock()).run_call(session, context), WAIT_SECONDS)

    assert isinstance(completion, CallCompletion)
    assert completion.outcome is CallOutcome.RESULT
    assert [method for method, _ in session.requests] == ["tasks/get", "tasks/get", "tasks/update", "tasks/get"]


async def test_answers_that_the_upstream_rejects_are_requested_again() -> None:
    answered = RecordingCallContext(FOLLOWED_CALL)
    await answered.request_input({"name": QUESTION})
    answered.answer_input({"r1.1": ACCEPTED_ANSWER})

    completion, context, session = await run(answered.call, INPUT_REQUIRED_TASK, INVALID, INPUT_REQUIRED_TASK, DONE)

    assert completion.outcome is CallOutcome.RESULT
    assert [method for method, _ in session.requests] == ["tasks/get", "tasks/update", "tasks/get", "tasks/get"]
    assert list(context.call.input_requests) == ["r2.1"]
    assert context.call.input_responses == {}


async def test_an_accepted_answer_is_not_requested_again_while_it_is_still_listed() -> None:
    answered = RecordingCallContext(FOLLOWED_CALL)
    await answered.request_input({"name": QUESTION})
    answered.answer_input({"r1.1": ACCEPTED_ANSWER})

    _, context, session = await run(answered.call, INPUT_REQUIRED_TASK, ACK, INPUT_REQUIRED_TASK, DONE)

    assert session.requests[1] == ("tasks/update", {"taskId": "1", "inputResponses": {"name": ACCEPTED_ANSWER}})
    assert context.call.input_requests == {}


async def test_every_request_declares_the_extension() -> None:
    _, _, session = await run(FOLLOWED_CALL, WORKING, DONE)

    assert [declared and declared["extensions"] for declared in session.declared_capabilities] == [
        {TASKS_EXTENSION: {}}
    ] * 2


LEGACY = NegotiatedProtocol(protocol_version="2025-11-25")
MODERN = NegotiatedProtocol(protocol_version="2026-07-28")
WITH_TASKS = replace(MODERN, capabilities={"extensions": {TASKS_EXTENSION: {}}})


@pytest.mark.parametrize(
    ("handle", "negotiated", "driver"),
    [
        (None, LEGACY, PlainDriver),
        (None, MODERN, MrtrDriver),
        (None, WITH_TASKS, TaskDriver),
        ("mrtr", WITH_TASKS, TaskDriver),
        ("mrtr", MODERN, MrtrDriver),
        ("task", MODERN, TaskDriver),
        ("task", LEGACY, UnsupportedHandleDriver),
        ("mrtr", LEGACY, UnsupportedHandleDriver),
    ],
)
def test_the_driver_is_that_of_the_handle_or_the_most_durable_one(
    handle: str | None, negotiated: NegotiatedProtocol, driver: type[object]
) -> None:
    call = replace(CALL, handle=handle and Handle(driver=handle, data={"task_id": "1"}))

    assert type(select_driver(call, ScriptedSession(negotiated=negotiated), clock=FakeClock())) is driver


@pytest.mark.requirement("R32")
async def test_a_task_that_asks_for_what_was_not_offered_is_cancelled() -> None:
    """Its call had ended, and the task waited for an answer that no client could send."""
    sampling: dict[str, Any] = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
    asking: dict[str, Any] = {"status": "input_required", "inputRequests": {"model": sampling}}

    completion, _, session = await run(FOLLOWED_CALL, asking, ACK)

    assert completion.outcome is CallOutcome.UPSTREAM_ERROR
    assert [method for method, _ in session.requests] == ["tasks/get", "tasks/cancel"]
