"""The driver for tasks of 2025-11-25 over a session with scripted responses."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.call import CallStatus, InputRequest
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.domain.upstreams import ToolInfo
from ringback.protocol import tasks as protocol_tasks
from ringback.protocol.errors import (
    InvalidUpstreamResponse,
    RequestNotSent,
    ResponseLost,
    SessionNotFound,
    UpstreamError,
    UpstreamUnavailable,
)
from ringback.protocol.sessions import LegacySessionId, NegotiatedProtocol
from ringback.protocol.tasks import CONSECUTIVE_ERRORS_MAX
from ringback.protocol.upstream_logins import LOGIN_REQUEST_KEY
from ringback.runner.drivers.legacy_task import LegacyTaskDriver, make_legacy_task_handle, runs_as_task
from tests.support.clock import FakeClock
from tests.support.examples import CALL
from tests.support.limits import WAIT_SECONDS
from tests.support.recording_call_context import RecordingCallContext
from tests.support.scripted_sessions import ScriptedSession

TASKS: dict[str, Any] = {"tasks": {"requests": {"tools": {"call": {}}}}}
RESULT: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
WORKING: dict[str, Any] = {"taskId": "t1", "status": "working"}
COMPLETED = {**WORKING, "status": "completed"}
TASK_NOT_FOUND = UpstreamError({"code": -32602, "message": "no such task"})
SESSION = LegacySessionId(session_id="s1", protocol_version="2025-11-25")
SAVED_HANDLE = replace(CALL, handle=make_legacy_task_handle("t1", SESSION))


async def run(session: ScriptedSession, context: RecordingCallContext) -> CallCompletion:
    return await LegacyTaskDriver(clock=FakeClock()).run_call(session, context)


class SessionWithTool(ScriptedSession):
    def __init__(self, capabilities: dict[str, Any], tool: dict[str, Any] | None) -> None:
        super().__init__(
            RESULT, negotiated=NegotiatedProtocol(protocol_version="2025-11-25", capabilities=capabilities)
        )
        self._tool = tool

    def get_tool(self, name: str) -> ToolInfo | None:
        return None if self._tool is None else ToolInfo(name=name, description=None, input_schema={}, raw=self._tool)


@pytest.mark.parametrize(
    ("capabilities", "tool", "expected"),
    [
        (TASKS, {"execution": {"taskSupport": "required"}}, True),
        (TASKS, {"execution": {"taskSupport": "optional"}}, True),
        (TASKS, {"execution": {"taskSupport": "forbidden"}}, False),
        (TASKS, {"execution": {"taskSupport": ["optional"]}}, False),
        (TASKS, {"execution": "required"}, False),
        (TASKS, {}, False),
        (TASKS, None, False),
        ({"tasks": {"list": {}}}, {"execution": {"taskSupport": "required"}}, False),
        ({}, {"execution": {"taskSupport": "required"}}, False),
    ],
)
def test_a_call_runs_as_a_task_if_the_server_and_the_tool_declare_it(
    capabilities: dict[str, Any], tool: dict[str, Any] | None, *, expected: bool
) -> None:
    assert runs_as_task(SessionWithTool(capabilities, tool), "work") is expected


async def test_a_result_instead_of_a_task_completes_the_call() -> None:
    context = RecordingCallContext(CALL)

    assert (await run(ScriptedSession(RESULT), context)).outcome is CallOutcome.RESULT
    assert context.saved_handles == []


@pytest.mark.parametrize("task", [None, {}, {"taskId": ""}, {"taskId": 1}, {"taskId": "x" * 2000}])
async def test_a_task_without_a_usable_id_is_an_upstream_error(task: Any) -> None:
    context = RecordingCallContext(CALL)

    completion = await run(ScriptedSession({"task": task}), context)

    assert (completion.outcome, context.saved_handles) == (CallOutcome.UPSTREAM_ERROR, [])


async def test_the_handle_is_saved_before_any_other_request() -> None:
    session, context = ScriptedSession({"task": WORKING}, WORKING, COMPLETED, RESULT), RecordingCallContext(CALL)

    completion = await run(session, context)

    assert (completion.outcome, context.saved_handles) == (CallOutcome.RESULT, [make_legacy_task_handle("t1", None)])
    assert [method for method, _ in session.requests] == ["tools/call", "tasks/get", "tasks/get", "tasks/result"]
    assert session.requests[0][1]["task"]["ttl"] == (3600 + 24 * 3600) * 1000


async def test_an_upstream_that_is_unreachable_for_a_while_is_polled_again() -> None:
    session = ScriptedSession(
        *[ResponseLost("lost")] * 30,
        *[UpstreamUnavailable("proxy")] * 30,
        *[InvalidUpstreamResponse("proxy")] * CONSECUTIVE_ERRORS_MAX,
        COMPLETED,
        ResponseLost("lost"),
        COMPLETED,
        RESULT,
    )

    assert (await run(session, RecordingCallContext(SAVED_HANDLE))).outcome is CallOutcome.RESULT


@pytest.mark.requirement("R33")
@pytest.mark.parametrize("refusals", [[TASK_NOT_FOUND], [InvalidUpstreamResponse("no task")], [{"status": "sleeping"}]])
async def test_an_upstream_that_no_longer_knows_the_task_ends_the_call_as_unknown(refusals: list[Any]) -> None:
    session = ScriptedSession(*refusals)

    assert (await run(session, RecordingCallContext(SAVED_HANDLE))).outcome is CallOutcome.UNKNOWN


async def test_a_task_survives_the_loss_of_its_session() -> None:
    session = ScriptedSession(SessionNotFound("forgotten"), COMPLETED, RESULT)

    assert (await run(session, RecordingCallContext(SAVED_HANDLE))).outcome is CallOutcome.RESULT
    assert session.scripted_legacy_session.rejoin_count == 1


async def test_an_unsent_request_is_raised_and_does_not_end_the_call() -> None:
    with pytest.raises(RequestNotSent):
        await run(ScriptedSession(RequestNotSent("away")), RecordingCallContext(SAVED_HANDLE))


async def test_a_rejected_result_request_of_a_task_that_needs_input_does_not_end_the_call() -> None:
    session = ScriptedSession({**WORKING, "status": "input_required"}, TASK_NOT_FOUND, COMPLETED, RESULT)

    assert (await run(session, RecordingCallContext(SAVED_HANDLE))).outcome is CallOutcome.RESULT


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [({**WORKING, "status": "cancelled"}, CallOutcome.CANCELLED), (WORKING, None), (TASK_NOT_FOUND, None)],
)
async def test_a_cancel_request_ends_the_call_only_if_the_task_is_cancelled(
    reply: Any, outcome: CallOutcome | None
) -> None:
    completion = await LegacyTaskDriver(clock=FakeClock()).cancel_call(ScriptedSession(reply), SAVED_HANDLE)

    assert (completion and completion.outcome) is outcome


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    ("reply", "outcome"), [({**WORKING, "status": "cancelled"}, CallOutcome.CANCELLED), (TASK_NOT_FOUND, None)]
)
async def test_a_task_whose_session_is_gone_is_cancelled_in_the_next_one(
    reply: Any, outcome: CallOutcome | None
) -> None:
    """The driver goes on with it there, but each cancel request went to the old session, and none arrived."""
    session = ScriptedSession(SessionNotFound("forgotten"), reply)

    completion = await LegacyTaskDriver(clock=FakeClock()).cancel_call(session, SAVED_HANDLE)

    assert (completion and completion.outcome) is outcome
    assert session.scripted_legacy_session.rejoin_count == 1
    assert [method for method, _ in session.requests] == ["tasks/cancel"] * 2


@pytest.mark.requirement("R33")
@pytest.mark.parametrize("accepts_input", [True, False])
async def test_a_task_that_can_be_polled_without_the_login_that_its_call_waits_for_asks_for_none_any_more(
    *, accepts_input: bool
) -> None:
    """Its client was asked to sign in until the end of the task, and so long the other calls waited, too."""
    login = InputRequest(
        name=LOGIN_REQUEST_KEY, method="elicitation/create", params={"mode": "url", "url": "https://a"}
    )
    question = InputRequest(name="7", method="elicitation/create", params={"message": "Really?"})
    waiting = replace(
        SAVED_HANDLE,
        accepts_input=accepts_input,
        status=CallStatus.INPUT_REQUIRED,
        input_requests={LOGIN_REQUEST_KEY: login, "r1.1": question},
    )
    context = RecordingCallContext(waiting)

    await run(ScriptedSession(WORKING, COMPLETED, RESULT), context)

    assert list(context.call.input_requests) == ["r1.1"]


class SilentAtFirst(ScriptedSession):
    """A session whose first tasks/result gets no response."""

    is_silent = True

    async def send_request(self, method: str, params: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        if method == "tasks/result" and self.is_silent:
            self.is_silent = False
            await asyncio.Event().wait()
        return await super().send_request(method, params, **options)


@pytest.mark.requirement("R33")
async def test_the_result_of_an_ended_task_is_fetched_again_if_there_is_no_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol_tasks, "POLL_TIMEOUT_SECONDS", 0.01)
    session = SilentAtFirst(COMPLETED, COMPLETED, RESULT)

    completion = await asyncio.wait_for(run(session, RecordingCallContext(SAVED_HANDLE)), WAIT_SECONDS)

    assert completion.outcome is CallOutcome.RESULT
    assert [method for method, _ in session.requests] == ["tasks/get", "tasks/get", "tasks/result"]
