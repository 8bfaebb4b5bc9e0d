"""Drivers whose upstream requires a login: the driver raises it, and the call keeps what it needs to go on after the login."""

import asyncio
from dataclasses import replace
from typing import Any, Final

import pytest

from ringback.domain.call import Call, Handle
from ringback.domain.call_outcome import CallOutcome
from ringback.protocol.errors import LoginRequired, RequestFailed, ResponseLost
from ringback.runner.drivers.driver import Driver
from ringback.runner.drivers.legacy_elicitation import run_with_elicitations
from ringback.runner.drivers.legacy_task import LegacyTaskDriver, make_legacy_task_handle
from ringback.runner.drivers.mrtr import MrtrDriver
from ringback.runner.drivers.plain import PlainDriver
from ringback.runner.drivers.stream import StreamDriver
from ringback.runner.drivers.task import TaskDriver
from tests.support.clock import FakeClock
from tests.support.examples import CALL
from tests.support.recording_call_context import RecordingCallContext
from tests.support.scripted_sessions import ScriptedLegacySession, ScriptedSession

REFUSED: Final = LoginRequired("The upstream requires a login.")
STREAM: Final = Handle(
    driver="stream", data={"session_id": "s1", "protocol_version": "2025-11-25", "request_id": "r1", "event_id": "1"}
)
TASK: Final = Handle(driver="task", data={"task_id": "1"})
ROUND: Final = Handle(driver="mrtr", data={"request_state": "state", "round": 1})
DRIVERS: Final[tuple[tuple[Driver, Handle | None], ...]] = (
    (PlainDriver(), None),
    (MrtrDriver(), None),
    (MrtrDriver(), ROUND),
    (StreamDriver(clock=FakeClock()), None),
    (StreamDriver(clock=FakeClock()), STREAM),
    (TaskDriver(clock=FakeClock()), None),
    (TaskDriver(clock=FakeClock()), TASK),
    (LegacyTaskDriver(clock=FakeClock()), None),
    (LegacyTaskDriver(clock=FakeClock()), make_legacy_task_handle("1", None)),
)


@pytest.mark.parametrize(("driver", "handle"), DRIVERS)
async def test_a_refused_request_does_not_end_the_call_and_its_handle_stays(
    driver: Driver, handle: Handle | None
) -> None:
    context = RecordingCallContext(replace(CALL, handle=handle))
    session = ScriptedSession(REFUSED)

    with pytest.raises(LoginRequired):
        await driver.run_call(session, context)
    assert (context.call.handle, len(session.requests)) == (handle, 1), "the request is sent once"


async def test_the_answers_of_a_refused_round_are_sent_after_the_login() -> None:
    answers: dict[str, Any] = {"name": {"action": "accept", "content": {}}}
    context = RecordingCallContext(replace(CALL, handle=ROUND, input_responses=answers))

    with pytest.raises(LoginRequired):
        await MrtrDriver().run_call(ScriptedSession(REFUSED), context)
    session = ScriptedSession({"content": []})
    await MrtrDriver().run_call(session, context)

    ((_, params),) = session.requests
    assert (params["inputResponses"], params["requestState"]) == (answers, "state")


class RefusingLegacySession(ScriptedLegacySession):
    async def answer_elicitation(self, request_id: str, answer: Any) -> None:  # noqa: ARG002 - the session's names
        raise REFUSED


@pytest.mark.parametrize(("handle", "error"), [(None, ResponseLost), (STREAM, LoginRequired)])
async def test_an_answer_that_is_refused_while_the_tool_runs_leaves_no_call_that_could_run_twice(
    handle: Handle | None, error: type[RequestFailed]
) -> None:
    call: Call = replace(CALL, accepts_input=True, handle=handle, input_responses={"name": {"action": "accept"}})
    session = RefusingLegacySession(ScriptedSession({}))

    with pytest.raises(error):
        await run_with_elicitations(lambda: session, RecordingCallContext(call), _never_end())


async def _never_end() -> CallOutcome:
    await asyncio.Event().wait()
    raise AssertionError
