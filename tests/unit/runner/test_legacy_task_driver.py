"""The driver for tasks of 2025-11-25 over a session that answers what a test wants."""

from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.call import CallCompletion, CallOutcome
from ringback.domain.upstreams import ToolInfo
from ringback.runner.drivers.legacy_task import LegacyTaskDriver, make_legacy_task_handle, runs_as_task
from ringback.runner.drivers.task_polling import CONSECUTIVE_ERRORS_MAX
from ringback.upstreams.errors import (
    InvalidUpstreamResponse,
    RequestNotSent,
    ResponseLost,
    SessionNotFound,
    UpstreamError,
)
from ringback.upstreams.session_ports import LegacySessionId, NegotiatedProtocol
from tests.support.clock import FakeClock
from tests.support.examples import CALL
from tests.support.recording_call_context import RecordingCallContext
from tests.support.scripted_sessions import ScriptedSession

TASKS: dict[str, Any] = {"tasks": {"requests": {"tools": {"call": {}}}}}
RESULT: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
WORKING: dict[str, Any] = {"taskId": "t1", "status": "working"}
COMPLETED = {**WORKING, "status": "completed"}
TASK_NOT_FOUND = UpstreamError({"code": -32602, "message": "no such task"})
SESSION = LegacySessionId(session_id="s1", protocol_version="2025-11-25")
SAVED_HANDLE = replace(CALL, handle=make_legacy_task_handle("t1", SESSION))


async def run(session: ScriptedSession, desk: RecordingCallContext) -> CallCompletion:
    return await LegacyTaskDriver(clock=FakeClock()).run_call(session, desk)


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
        (TASKS, {"execution": "required"}, False),
        (TASKS, {}, False),
        (TASKS, None, False),
        ({"tasks": {"list": {}}}, {"execution": {"taskSupport": "required"}}, False),
        ({}, {"execution": {"taskSupport": "required"}}, False),
    ],
)
def test_a_call_becomes_a_task_when_the_server_and_the_tool_say_so(
    capabilities: dict[str, Any], tool: dict[str, Any] | None, *, expected: bool
) -> None:
    assert runs_as_task(SessionWithTool(capabilities, tool), "work") is expected


async def test_a_server_that_answers_at_once_has_answered() -> None:
    desk = RecordingCallContext(CALL)

    assert (await run(ScriptedSession(RESULT), desk)).outcome is CallOutcome.RESULT
    assert desk.saved_handles == []


@pytest.mark.parametrize("task", [None, {}, {"taskId": ""}, {"taskId": 1}, {"taskId": "x" * 2000}])
async def test_a_task_that_cannot_be_found_again_is_an_upstream_error(task: Any) -> None:
    desk = RecordingCallContext(CALL)

    ending = await run(ScriptedSession({"task": task}), desk)

    assert (ending.outcome, desk.saved_handles) == (CallOutcome.UPSTREAM_ERROR, [])


async def test_the_handle_is_saved_before_any_other_request() -> None:
    session, desk = ScriptedSession({"task": WORKING}, WORKING, COMPLETED, RESULT), RecordingCallContext(CALL)

    ending = await run(session, desk)

    assert (ending.outcome, desk.saved_handles) == (CallOutcome.RESULT, [make_legacy_task_handle("t1", None)])
    assert [method for method, _ in session.requests] == ["tools/call", "tasks/get", "tasks/get", "tasks/result"]
    assert session.requests[0][1]["task"]["ttl"] == (3600 + 24 * 3600) * 1000


async def test_an_upstream_that_is_unreachable_for_a_while_is_polled_again() -> None:
    session = ScriptedSession(
        *[ResponseLost("lost")] * 30,
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


async def test_a_session_that_is_forgotten_is_not_the_end_of_its_tasks() -> None:
    session = ScriptedSession(SessionNotFound("forgotten"), COMPLETED, RESULT)

    assert (await run(session, RecordingCallContext(SAVED_HANDLE))).outcome is CallOutcome.RESULT
    assert session.scripted_legacy_session.rejoin_count == 1


async def test_a_missing_connection_ends_the_execution_and_not_the_call() -> None:
    with pytest.raises(RequestNotSent):
        await run(ScriptedSession(RequestNotSent("away")), RecordingCallContext(SAVED_HANDLE))


async def test_a_refusal_while_input_is_wanted_says_nothing_of_the_end() -> None:
    session = ScriptedSession({**WORKING, "status": "input_required"}, TASK_NOT_FOUND, COMPLETED, RESULT)

    assert (await run(session, RecordingCallContext(SAVED_HANDLE))).outcome is CallOutcome.RESULT


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [({**WORKING, "status": "cancelled"}, CallOutcome.CANCELLED), (WORKING, None), (TASK_NOT_FOUND, None)],
)
async def test_only_a_task_that_is_cancelled_by_then_ends_the_call(reply: Any, outcome: CallOutcome | None) -> None:
    ending = await LegacyTaskDriver(clock=FakeClock()).cancel_call(ScriptedSession(reply), SAVED_HANDLE)

    assert (ending and ending.outcome) is outcome
