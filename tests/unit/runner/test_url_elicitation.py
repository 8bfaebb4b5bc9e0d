"""A legacy upstream that wants a page to be opened before it takes a call (-32042)."""

from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.call import MRTR_DRIVER, Call
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.protocol.errors import UpstreamError
from ringback.protocol.sessions import NegotiatedProtocol
from ringback.runner.drivers.driver import ParkedCall
from ringback.runner.drivers.selection import select_driver
from ringback.runner.drivers.url_elicitation import ROUNDS_MAX
from tests.support.clock import FakeClock
from tests.support.examples import CALL
from tests.support.recording_call_context import RecordingCallContext
from tests.support.scripted_sessions import ScriptedSession

LEGACY = NegotiatedProtocol(protocol_version="2025-11-25")
PAGE: dict[str, Any] = {"mode": "url", "elicitationId": "e1", "url": "https://u.example/go", "message": "Sign in."}
ASKING_CALL = replace(CALL, accepts_input=True)
RESULT: dict[str, Any] = {"content": []}


def refusal(*pages: Any, code: int = -32042) -> UpstreamError:
    return UpstreamError({"code": code, "message": "open it", "data": {"elicitations": list(pages)}})


async def run(session: ScriptedSession, context: RecordingCallContext) -> CallCompletion | ParkedCall:
    return await select_driver(context.call, session, clock=FakeClock()).run_call(session, context)


async def park(session: ScriptedSession, call: Call = ASKING_CALL) -> RecordingCallContext:
    """The context of a call that is parked for a page, as the execution leaves it."""
    context = RecordingCallContext(call)
    parked = await run(session, context)
    assert isinstance(parked, ParkedCall)
    context.call = replace(context.call, handle=parked.handle)
    await context.request_input(parked.input_requests)
    return context


async def test_the_call_is_parked_with_the_page_and_runs_once_it_is_opened() -> None:
    session = ScriptedSession(refusal(PAGE), RESULT, negotiated=LEGACY)

    context = await park(session)
    ((key, asked),) = context.call.input_requests.items()
    context.answer_input({key: {"action": "accept"}})
    ended = await run(session, context)

    assert (asked.name, asked.params, context.call.handle) == ("e1", PAGE, None)
    assert isinstance(ended, CallCompletion)
    assert ended.outcome is CallOutcome.RESULT
    assert [method for method, _ in session.requests] == ["tools/call"] * 2
    assert not context.call.input_responses


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_page_that_the_user_refuses_ends_the_call(action: str) -> None:
    session = ScriptedSession(refusal(PAGE), RESULT, negotiated=LEGACY)
    context = await park(session)
    context.answer_input({key: {"action": action} for key in context.call.input_requests})

    ended = await run(session, context)

    assert isinstance(ended, CallCompletion)
    assert (ended.outcome, len(session.requests)) == (CallOutcome.UPSTREAM_ERROR, 1)


async def test_a_page_that_is_never_done_is_not_asked_for_without_end() -> None:
    session = ScriptedSession(refusal(PAGE), negotiated=LEGACY)
    context = await park(session)
    for _ in range(ROUNDS_MAX):
        context.answer_input({key: {"action": "accept"} for key in context.call.input_requests})
        ended = await run(session, context)
        if isinstance(ended, CallCompletion):
            break
        context.call = replace(context.call, handle=ended.handle)
        await context.request_input(ended.input_requests)
    else:
        pytest.fail("it is asked without end")

    assert ended.error == refusal(PAGE).error
    assert len(session.requests) == ROUNDS_MAX + 1


@pytest.mark.parametrize(
    ("call", "failure"),
    [
        (CALL, refusal(PAGE)),
        (ASKING_CALL, refusal()),
        (ASKING_CALL, refusal(PAGE, code=-32000)),
        (ASKING_CALL, refusal({**PAGE, "url": 7})),
        (ASKING_CALL, refusal(PAGE, "odd")),
        (ASKING_CALL, refusal(*({**PAGE, "elicitationId": str(number)} for number in range(100)))),
        (ASKING_CALL, UpstreamError({"code": -32042, "message": "not today", "data": {"retry": False}})),
    ],
)
async def test_another_error_and_that_of_a_call_without_input_pass_as_they_are(
    call: Call, failure: UpstreamError
) -> None:
    ended = await run(ScriptedSession(failure, negotiated=LEGACY), RecordingCallContext(call))

    assert isinstance(ended, CallCompletion)
    assert ended.error == failure.error


async def test_a_server_that_speaks_the_modern_protocol_meanwhile_gets_the_call_as_well() -> None:
    context = await park(ScriptedSession(refusal(PAGE), negotiated=LEGACY))
    context.answer_input({key: {"action": "accept"} for key in context.call.input_requests})
    assert context.call.handle is not None
    assert context.call.handle.driver == MRTR_DRIVER

    ended = await run(ScriptedSession(RESULT), context)

    assert isinstance(ended, CallCompletion)
    assert ended.outcome is CallOutcome.RESULT
