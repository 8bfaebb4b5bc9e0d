"""What models read about a call: what it does now, and what to do next."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from ringback.domain.call import Call, CallPhase, Progress
from ringback.domain.call_outcome import CallOutcome, failed_completion, unknown_completion
from ringback.domain.call_waits import UNSENT_REASON
from ringback.domain.upstreams import UpstreamInfo
from ringback.mcp_server.call_text import describe_call, get_next_step, get_pending_step, render_pending_text
from ringback.mcp_server.tool_call_responder import build_call_result
from tests.support.builders import make_call
from tests.support.clock import START


def make_ended_call(outcome: CallOutcome, message: str = "It went wrong.") -> Call:
    error = failed_completion(outcome, message).error
    return replace(make_call(), outcome=outcome, status="failed", error=error, dispatched_at=START)


def make_info(state: str, **over: Any) -> UpstreamInfo:
    return UpstreamInfo(name="git", transport="http", state=state, **over)


@pytest.mark.parametrize(
    ("upstream", "about"),
    [
        (make_info("failing", last_error="cannot_connect"), "'git' cannot be reached now (cannot connect)"),
        (make_info("failing", last_error="tokens_unreadable"), "This node cannot read the login to 'git'"),
        (make_info("connecting"), "'git' is being started or connected"),
        (make_info("idle"), "'git' is being started or connected"),
        (make_info("ready"), "The call waits in the queue"),
        (None, "'git' is not configured now"),
    ],
)
def test_a_pending_text_says_why_the_tool_has_not_started(upstream: UpstreamInfo | None, about: str) -> None:
    call = make_call(dispatched_at=None)

    text = render_pending_text(call, upstream)

    assert f"The tool '{call.tool}' of 'git' has not started. {about}" in text
    assert "it is queued already" in text
    assert call.id in text
    assert "runs" not in text


def test_a_pending_text_says_that_a_call_whose_turn_has_come_is_not_sent_yet() -> None:
    text = render_pending_text(make_call(phase=CallPhase.RUNNING, dispatched_at=None), make_info("ready"))

    assert f"has not started. {UNSENT_REASON.removesuffix('.')} (call_id" in text


def test_a_pending_text_says_when_a_call_that_was_refused_with_429_is_sent_again() -> None:
    message = "The upstream takes no more requests now (HTTP 429). The call is sent again at 2026-11-20T17:00:30Z."
    call = make_call(dispatched_at=None, progress=Progress(progress=0.0, message=message))

    text = render_pending_text(call, make_info("ready"))

    assert f"has not started. {message.removesuffix('.')} (call_id" in text
    assert "waits in the queue" not in text


def test_a_pending_text_says_that_a_dispatched_tool_runs() -> None:
    call = make_call(dispatched_at=START)

    assert "has not finished. It runs in the background" in render_pending_text(call, make_info("ready"))
    assert "it runs already" in get_pending_step(call)


@pytest.mark.parametrize("outcome", [each for each in CallOutcome if each is not CallOutcome.RESULT])
def test_each_end_has_its_own_next_step(outcome: CallOutcome) -> None:
    steps = {
        each: describe_call(make_ended_call(each), None)["next_step"]
        for each in CallOutcome
        if each is not CallOutcome.RESULT
    }

    assert list(steps.values()).count(steps[outcome]) == 1
    assert "Nothing" not in steps[outcome]


@pytest.mark.parametrize("outcome", [CallOutcome.UNKNOWN, CallOutcome.REJECTED, CallOutcome.TIMED_OUT])
def test_an_error_of_ringback_names_the_call_and_the_next_step(outcome: CallOutcome) -> None:
    """A client that resumes its lost request has seen no pending result, and so no id."""
    call = make_ended_call(outcome)

    with pytest.raises(MCPError) as raised:
        build_call_result(call, None)

    error = raised.value.error
    assert error.message.startswith(f"It went wrong. Call {call.id}: ")
    assert "ringback_get_call" in error.message
    assert error.data == {"outcome": str(outcome), "call_id": call.id}


def test_an_unknown_outcome_that_another_ringback_reported_names_this_call_and_keeps_its_cause() -> None:
    cause = {"code": -32603, "message": "Call call_1 was lost.", "data": {"outcome": "unknown"}}
    ended = unknown_completion("It went wrong.", cause=cause)
    call = replace(make_ended_call(CallOutcome.UNKNOWN), error=ended.error)

    with pytest.raises(MCPError, match=f"It went wrong. Call {call.id}: ") as raised:
        build_call_result(call, None)

    assert raised.value.error.data == {"outcome": "unknown", "cause": cause, "call_id": call.id}


def test_a_cancelled_call_is_an_error_with_its_id() -> None:
    call = replace(make_call(), outcome=CallOutcome.CANCELLED, status="cancelled")

    with pytest.raises(MCPError, match=f"The call was cancelled. Call {call.id}: "):
        build_call_result(call, None)


def test_an_error_of_the_upstream_is_passed_on_unchanged() -> None:
    theirs = {"code": -32042, "message": "No.", "data": {"retry": False}}
    call = replace(make_ended_call(CallOutcome.UPSTREAM_ERROR), error=theirs)

    with pytest.raises(MCPError) as raised:
        build_call_result(call, None)

    assert raised.value.error.model_dump(exclude_none=True) == theirs


@pytest.mark.parametrize(
    ("phase", "dispatched_at", "says"),
    [
        (CallPhase.SCHEDULED, None, "has not started: it starts at 2026-11-20T17:00:00.000Z"),
        (CallPhase.QUEUED, None, "waits in the queue"),
        (CallPhase.RUNNING, None, f"has not started. {UNSENT_REASON} Do something else"),
        (CallPhase.RUNNING, START, "continues in the background"),
    ],
)
def test_the_next_step_says_whether_the_call_has_started(
    phase: CallPhase, dispatched_at: datetime | None, says: str
) -> None:
    call = make_call(phase=phase, dispatched_at=dispatched_at, not_before=START)

    assert f"The call {says}" in get_next_step(call, poll_limit_reached=False)


@pytest.mark.parametrize(("dispatched_at", "state"), [(None, "waits"), (START, "continues in the background")])
def test_a_model_that_polls_too_often_is_told_whether_the_call_has_started(
    dispatched_at: datetime | None, state: str
) -> None:
    call = make_call(phase=CallPhase.RUNNING, dispatched_at=dispatched_at)

    assert f"Tell the user that it {state}, and end" in get_next_step(call, poll_limit_reached=True)
