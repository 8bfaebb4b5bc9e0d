"""Elicitations in a legacy session that serves one call."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from mcp import MCPError

from ringback.domain.call import MRTR_DRIVER, CallPhase, CallStatus, Handle
from ringback.domain.inputs import INPUT_BYTES_MAX
from ringback.domain.login_waits import park_for_login
from ringback.protocol.errors import (
    LoginRequired,
    RequestFailed,
    RequestNotSent,
    ResponseLost,
    UpstreamUnavailable,
)
from ringback.protocol.upstream_logins import LOGIN_REQUEST_KEY
from ringback.runner.drivers.legacy_elicitation import run_with_elicitations
from tests.support.clock import START
from tests.support.examples import CALL
from tests.support.limits import WAIT_SECONDS
from tests.support.recording_call_context import RecordingCallContext
from tests.support.scripted_sessions import ScriptedLegacySession, ScriptedSession

INPUT_REQUIRED_CALL: Final = replace(CALL, accepts_input=True)
HANDLE: Final = Handle(driver="legacy_task", data={"task_id": "t1", "session": None})
ROUND: Final = Handle(driver=MRTR_DRIVER, data={"request_state": None, "round": 1, "url_round": 1})
ACCEPTED_ANSWER: Final[dict[str, Any]] = {"action": "accept", "content": {}}


def question(message: str = "Really?") -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": message}}


def make_context() -> ScriptedLegacySession:
    return ScriptedSession({}).scripted_legacy_session


async def wait_until(reached: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not reached():  # noqa: ASYNC110 - a list sends no notification
            await asyncio.sleep(0)


class RunningElicitation:
    """A tool's work, beside which questions come and go."""

    def __init__(self, session: ScriptedLegacySession, context: RecordingCallContext) -> None:
        self._session = session
        self._done = asyncio.Event()
        self._task = asyncio.create_task(run_with_elicitations(lambda: session, context, self._work()))

    async def receive_elicitation(self, name: str, asked: dict[str, Any] | None) -> None:
        await wait_until(lambda: self._session.on_elicitation is not None)
        assert self._session.on_elicitation is not None
        self._session.on_elicitation(name, asked)

    async def result(self, *, let_go: bool = True) -> str:
        if let_go:
            self._done.set()
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._task

    async def _work(self) -> str:
        await self._done.wait()
        return "done"


async def test_each_elicitation_is_answered_when_its_answer_arrives() -> None:
    session, context = make_context(), RecordingCallContext(INPUT_REQUIRED_CALL)
    running = RunningElicitation(session, context)
    await running.receive_elicitation("1", question())
    await running.receive_elicitation("2", question("Sure?"))
    await wait_until(lambda: len(context.call.input_requests) == 2)
    keys = {request.name: key for key, request in context.call.input_requests.items()}

    context.answer_input({keys["2"]: ACCEPTED_ANSWER})
    await wait_until(lambda: session.sent_responses)
    still_open = [request.name for request in context.call.input_requests.values()]
    context.answer_input({keys["1"]: ACCEPTED_ANSWER})
    await wait_until(lambda: len(session.sent_responses) == 2)

    assert await running.result() == "done"
    assert still_open == ["1"]
    assert session.sent_responses == [("2", ACCEPTED_ANSWER), ("1", ACCEPTED_ANSWER)]
    assert (context.call.status, context.call.input_responses) == (CallStatus.WORKING, {})


async def test_an_elicitation_that_is_withdrawn_is_removed() -> None:
    session, context = make_context(), RecordingCallContext(INPUT_REQUIRED_CALL)
    running = RunningElicitation(session, context)
    await running.receive_elicitation("1", question())
    await wait_until(lambda: context.call.input_requests)
    await running.receive_elicitation("1", None)
    await wait_until(lambda: not context.call.input_requests)

    assert await running.result() == "done"
    assert context.call.status is CallStatus.WORKING


async def test_an_elicitation_stored_by_an_earlier_process_is_answered_by_its_name() -> None:
    context = RecordingCallContext(INPUT_REQUIRED_CALL)
    await context.request_input({"7": question()})
    session = make_context()
    running = RunningElicitation(session, context)
    await wait_until(lambda: session.on_elicitation is not None)
    round_before = context.call.input_round

    context.answer_input(dict.fromkeys(context.call.input_requests, ACCEPTED_ANSWER))
    await wait_until(lambda: session.sent_responses)

    assert await running.result() == "done"
    assert session.sent_responses == [("7", ACCEPTED_ANSWER)]
    assert context.call.input_round == round_before


async def test_an_elicitation_that_cannot_be_kept_is_refused_and_the_others_stay_open() -> None:
    session, context = make_context(), RecordingCallContext(INPUT_REQUIRED_CALL)
    running = RunningElicitation(session, context)
    await running.receive_elicitation("1", question())
    with pytest.raises(MCPError, match="larger than"):
        await running.receive_elicitation("2", question("x" * INPUT_BYTES_MAX))
    await wait_until(lambda: context.call.input_requests)

    assert await running.result() == "done"
    assert [request.name for request in context.call.input_requests.values()] == ["1"]


async def test_a_call_that_is_sent_without_a_login_keeps_its_request_to_sign_in_until_the_upstream_asks() -> None:
    """It ended as if the upstream had asked for the login under a name of Ringback's, and its tool was abandoned."""
    leased = replace(INPUT_REQUIRED_CALL, phase=CallPhase.RUNNING, dispatched_at=START, lease_token="lease_1")
    call = park_for_login(leased, login_url="https://ringback.example/login", now=START)
    session, context = make_context(), RecordingCallContext(replace(call, phase=CallPhase.RUNNING))
    running = RunningElicitation(session, context)
    await running.receive_elicitation("1", None)
    for _ in range(10):
        await asyncio.sleep(0)
    open_before = list(context.call.input_requests)
    await running.receive_elicitation("1", question())
    await wait_until(lambda: LOGIN_REQUEST_KEY not in context.call.input_requests)

    assert await running.result() == "done"
    assert open_before == [LOGIN_REQUEST_KEY]
    assert [request.name for request in context.call.input_requests.values()] == ["1"]


async def test_elicitations_are_not_handled_for_a_call_that_accepts_no_input() -> None:
    session = make_context()
    running = RunningElicitation(session, RecordingCallContext(CALL))
    for _ in range(10):
        await asyncio.sleep(0)

    assert session.on_elicitation is None
    assert await running.result() == "done"


@pytest.mark.requirement("R32")
@pytest.mark.parametrize(
    "failure", [RequestNotSent("away"), LoginRequired("sign in"), ResponseLost("lost"), UpstreamUnavailable("503")]
)
@pytest.mark.parametrize(
    ("handle", "kind"),
    [(HANDLE, RequestNotSent), (ROUND, ResponseLost), (None, ResponseLost)],
    ids=["with a handle", "in a round", "without"],
)
async def test_an_answer_that_may_be_lost_is_sent_again_or_its_call_is_unknown(
    failure: RequestFailed, handle: Handle | None, kind: type[RequestFailed]
) -> None:
    """A call whose tool ran ended as rejected, and one that the next session could go on with as a bug of Ringback."""
    session, context = make_context(), RecordingCallContext(replace(INPUT_REQUIRED_CALL, handle=handle))
    session.answer_failures.append(failure)
    running = RunningElicitation(session, context)
    await running.receive_elicitation("1", question())
    await wait_until(lambda: context.call.input_requests)

    context.answer_input(dict.fromkeys(context.call.input_requests, ACCEPTED_ANSWER))

    with pytest.raises(kind):
        await running.result(let_go=False)
    assert context.call.input_responses
