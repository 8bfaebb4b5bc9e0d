"""A call as a task of either generation: every status, and exactly what belongs to it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.call import (
    CANCELLED,
    FINAL,
    TRANSITIONS,
    Call,
    InputRequest,
    Outcome,
    Progress,
    Status,
    advance,
    answered,
    failed,
    finish,
    refused,
)
from ringback.domain.clock import iso
from ringback.mcp_server.task_shapes import (
    POLL_MILLISECONDS_MAX,
    POLL_MILLISECONDS_MIN,
    TaskShapes,
    observable,
    progress_text,
    status_message,
)
from tests.support.builders import a_call

SHAPES = TaskShapes(result_retention_seconds=60.0)
RESULT = b'{"content":[{"type":"text","text":"done"}]}'
ERROR: dict[str, Any] = {"code": -32042, "message": "not today", "data": None}
PAYLOADS = {"inputRequests", "result", "error"}


def working() -> Call:
    call = a_call()
    return replace(call, dispatched_at=call.created_at)


def asking() -> Call:
    question = InputRequest(name="sure", method="elicitation/create", params={"message": "Really?"})
    call = advance(working(), Status.INPUT_REQUIRED, now=working().created_at)
    return replace(call, input_requests={"r1.1": question}, input_round=1)


def ended(outcome: Outcome) -> Call:
    endings = {
        Outcome.RESULT: answered(RESULT, is_error=False),
        Outcome.TOOL_ERROR: answered(RESULT, is_error=True),
        Outcome.UPSTREAM_ERROR: refused(ERROR),
        Outcome.UNKNOWN: failed(Outcome.UNKNOWN, "Nobody knows."),
        Outcome.CANCELLED: CANCELLED,
    }
    call = working()
    return finish(call, endings[outcome], now=call.created_at + timedelta(seconds=5), result_retention_seconds=60.0)


def detailed(call: Call) -> Mapping[str, Any]:
    return SHAPES.detailed(call, RESULT if call.status is Status.COMPLETED else None, now=call.updated_at)


@pytest.mark.parametrize(
    ("call", "status", "legacy_status", "payload"),
    [
        (working(), "working", "working", None),
        (asking(), "input_required", "input_required", "inputRequests"),
        (ended(Outcome.RESULT), "completed", "completed", "result"),
        (ended(Outcome.TOOL_ERROR), "completed", "failed", "result"),
        (ended(Outcome.UPSTREAM_ERROR), "failed", "failed", "error"),
        (ended(Outcome.UNKNOWN), "failed", "failed", "error"),
        (ended(Outcome.CANCELLED), "cancelled", "cancelled", None),
    ],
    ids=["working", "asking", "result", "tool-error", "upstream-error", "unknown", "cancelled"],
)
def test_each_status_has_its_payload_and_no_other(
    call: Call, status: str, legacy_status: str, payload: str | None
) -> None:
    now, old = detailed(call), SHAPES.legacy_task(call, now=call.updated_at)
    assert (now["status"], old["status"]) == (status, legacy_status)
    assert PAYLOADS & now.keys() == ({payload} if payload else set())
    assert PAYLOADS.isdisjoint(old)
    assert now["taskId"] == old["taskId"] == call.id
    assert now["createdAt"] == old["createdAt"] == iso(call.created_at)
    assert now["lastUpdatedAt"] == old["lastUpdatedAt"] == iso(call.updated_at)
    assert now["ttlMs"] == old["ttl"]


def test_the_seed_of_a_task_is_flat_today_and_was_nested() -> None:
    call = working()
    assert SHAPES.created(call, now=call.created_at) == {"resultType": "task", **detailed(call)}
    assert SHAPES.legacy_created(call, now=call.created_at) == {"task": SHAPES.legacy_task(call, now=call.created_at)}


def test_the_time_to_live_ends_with_the_result_and_before_that_is_the_longest_it_can_be() -> None:
    call = working()
    longest = call.deadline_at - call.created_at + timedelta(seconds=60)
    assert detailed(call)["ttlMs"] == longest // timedelta(milliseconds=1)
    assert detailed(ended(Outcome.RESULT))["ttlMs"] == 65_000


def test_a_failure_says_why_and_keeps_the_error_as_it_came() -> None:
    told = detailed(ended(Outcome.UPSTREAM_ERROR))
    assert (told["error"], told["statusMessage"]) == (ERROR, "not today")
    assert status_message(ended(Outcome.TOOL_ERROR)) == "The tool answered with an error."


def test_questions_stand_under_our_keys_and_not_under_the_upstreams() -> None:
    assert detailed(asking())["inputRequests"] == {
        "r1.1": {"method": "elicitation/create", "params": {"message": "Really?"}}
    }


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress(progress=3), "3"),
        (Progress(progress=3, total=10), "3 of 10"),
        (Progress(progress=0.5, total=1), "0.5 of 1"),
        (Progress(progress=3, total=10, message="Reading"), "Reading"),
    ],
)
def test_progress_is_told_in_the_tools_words_or_in_numbers(progress: Progress, text: str) -> None:
    assert progress_text(progress) == text
    assert status_message(replace(working(), progress=progress)) == text


def test_a_call_that_waits_for_its_upstream_says_so() -> None:
    assert status_message(a_call()) == "Waiting for the upstream."
    assert status_message(working()) == "The tool is running."


@given(age=st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=30)))
def test_clients_are_asked_to_look_less_often_the_longer_it_takes(age: timedelta) -> None:
    call = working()
    pace = SHAPES.created(call, now=call.created_at + age)["pollIntervalMs"]
    later = SHAPES.created(call, now=call.created_at + age + timedelta(seconds=1))["pollIntervalMs"]
    assert POLL_MILLISECONDS_MIN <= pace <= later <= POLL_MILLISECONDS_MAX


def test_what_has_ended_is_not_to_be_polled() -> None:
    for outcome in (Outcome.RESULT, Outcome.UPSTREAM_ERROR, Outcome.CANCELLED):
        call = ended(outcome)
        assert "pollIntervalMs" not in detailed(call)
        assert "pollInterval" not in SHAPES.legacy_task(call, now=call.updated_at)


def test_a_lease_is_no_news_and_progress_is() -> None:
    call = working()
    assert observable(replace(call, lease_owner="somebody", updated_at=call.updated_at)) == observable(call)
    assert observable(replace(call, progress=Progress(progress=1))) != observable(call)
    assert observable(asking()) != observable(call)


@pytest.mark.must("L08")
def test_statuses_follow_each_other_as_the_specification_draws_it() -> None:
    onward = {Status.COMPLETED, Status.FAILED, Status.CANCELLED}
    assert TRANSITIONS[Status.WORKING] == onward | {Status.INPUT_REQUIRED}
    assert TRANSITIONS[Status.INPUT_REQUIRED] == onward | {Status.WORKING}
    assert all(not TRANSITIONS[status] for status in FINAL)
