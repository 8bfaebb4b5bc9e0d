"""A call as a task of both eras: each status has exactly its own members."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.call import (
    FINAL_CALL_STATUSES,
    STATUS_TRANSITIONS,
    Call,
    CallPhase,
    CallStatus,
    InputRequest,
    Progress,
    advance_status,
    apply_completion,
)
from ringback.domain.call_outcome import (
    CANCELLED_COMPLETION,
    CallOutcome,
    completion_from_result,
    completion_from_upstream_error,
    failed_completion,
)
from ringback.domain.clock import format_iso
from ringback.mcp_server.call_text import progress_text
from ringback.mcp_server.task_serializer import (
    POLL_INTERVAL_MILLISECONDS_MAX,
    POLL_INTERVAL_MILLISECONDS_MIN,
    TaskSerializer,
    get_observable_state,
    status_message,
)
from tests.support.builders import make_call
from tests.support.clock import START

TASK_JSON_BY_STATUS = TaskSerializer(result_retention_seconds=60.0)
RESULT = b'{"content":[{"type":"text","text":"done"}]}'
ERROR: dict[str, Any] = {"code": -32042, "message": "not today", "data": None}
PAYLOADS = {"inputRequests", "result", "error"}


def make_working_call() -> Call:
    call = make_call()
    return replace(call, dispatched_at=call.created_at)


def make_input_required_call() -> Call:
    question = InputRequest(name="sure", method="elicitation/create", params={"message": "Really?"})
    call = advance_status(make_working_call(), CallStatus.INPUT_REQUIRED, now=make_working_call().created_at)
    return replace(call, input_requests={"r1.1": question}, input_round=1)


def make_ended_call(outcome: CallOutcome) -> Call:
    endings = {
        CallOutcome.RESULT: completion_from_result(RESULT, is_error=False),
        CallOutcome.TOOL_ERROR: completion_from_result(RESULT, is_error=True),
        CallOutcome.UPSTREAM_ERROR: completion_from_upstream_error(ERROR),
        CallOutcome.UNKNOWN: failed_completion(CallOutcome.UNKNOWN, "The end is unknown."),
        CallOutcome.CANCELLED: CANCELLED_COMPLETION,
    }
    call = make_working_call()
    return apply_completion(
        call, endings[outcome], now=call.created_at + timedelta(seconds=5), result_retention_seconds=60.0
    )


def serialize_task(call: Call) -> Mapping[str, Any]:
    return TASK_JSON_BY_STATUS.detailed_task(
        call, RESULT if call.status is CallStatus.COMPLETED else None, now=call.updated_at
    )


@pytest.mark.parametrize(
    ("call", "status", "legacy_status", "payload"),
    [
        (make_working_call(), "working", "working", None),
        (make_input_required_call(), "input_required", "input_required", "inputRequests"),
        (make_ended_call(CallOutcome.RESULT), "completed", "completed", "result"),
        (make_ended_call(CallOutcome.TOOL_ERROR), "completed", "failed", "result"),
        (make_ended_call(CallOutcome.UPSTREAM_ERROR), "failed", "failed", "error"),
        (make_ended_call(CallOutcome.UNKNOWN), "failed", "failed", "error"),
        (make_ended_call(CallOutcome.CANCELLED), "cancelled", "cancelled", None),
    ],
    ids=["working", "asking", "result", "tool-error", "upstream-error", "unknown", "cancelled"],
)
def test_each_status_has_its_payload_and_no_other(
    call: Call, status: str, legacy_status: str, payload: str | None
) -> None:
    now, old = serialize_task(call), TASK_JSON_BY_STATUS.legacy_task(call, now=call.updated_at)
    assert (now["status"], old["status"]) == (status, legacy_status)
    assert PAYLOADS & now.keys() == ({payload} if payload else set())
    assert PAYLOADS.isdisjoint(old)
    assert now["taskId"] == old["taskId"] == call.id
    assert now["createdAt"] == old["createdAt"] == format_iso(call.created_at)
    assert now["lastUpdatedAt"] == old["lastUpdatedAt"] == format_iso(call.updated_at)
    assert now["ttlMs"] == old["ttl"]


def test_a_created_task_is_flat_for_modern_and_nested_for_legacy_clients() -> None:
    call = make_working_call()
    assert TASK_JSON_BY_STATUS.create_task_result(call, now=call.created_at) == {
        "resultType": "task",
        **serialize_task(call),
    }
    assert TASK_JSON_BY_STATUS.legacy_create_task_result(call, now=call.created_at) == {
        "task": TASK_JSON_BY_STATUS.legacy_task(call, now=call.created_at)
    }


def test_the_ttl_is_the_expiry_of_the_result_or_the_maximum_of_a_running_call() -> None:
    call = make_working_call()
    longest = call.deadline_at - call.created_at + timedelta(seconds=60)
    assert serialize_task(call)["ttlMs"] == longest // timedelta(milliseconds=1)
    assert serialize_task(make_ended_call(CallOutcome.RESULT))["ttlMs"] == 65_000


def test_a_failed_task_has_the_unchanged_error_and_its_message() -> None:
    returned = serialize_task(make_ended_call(CallOutcome.UPSTREAM_ERROR))
    assert (returned["error"], returned["statusMessage"]) == (ERROR, "not today")
    assert status_message(make_ended_call(CallOutcome.TOOL_ERROR)) == "The tool answered with an error."


def test_questions_have_our_keys_and_not_the_upstreams() -> None:
    assert serialize_task(make_input_required_call())["inputRequests"] == {
        "r1.1": {"method": "elicitation/create", "params": {"message": "Really?"}}
    }


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress(progress=3), "3"),
        (Progress(progress=3, total=10), "3 of 10"),
        (Progress(progress=0.5, total=1), "0.5 of 1"),
        (Progress(progress=1_234_567.0, total=10.0 * 2**30), "1234567 of 10737418240"),
        (Progress(progress=3, total=10, message="Reading"), "Reading"),
    ],
)
def test_progress_is_described_by_the_tools_text_or_in_numbers(progress: Progress, text: str) -> None:
    assert progress_text(progress) == text
    assert status_message(replace(make_working_call(), progress=progress)) == text


def test_a_call_that_waits_says_what_it_waits_for() -> None:
    assert status_message(make_call()) == "The call waits in the queue for its turn."
    assert "sent once its upstream can be reached" in str(status_message(make_call(phase=CallPhase.RUNNING)))
    paused = status_message(make_call(), is_paused=True)
    assert paused == f"The call waits because an operator has paused its upstream, {make_call().upstream}."
    scheduled = make_call(phase=CallPhase.SCHEDULED, not_before=START)
    assert status_message(scheduled) == "The call has not started: it starts at 2026-11-20T17:00:00.000Z."
    assert status_message(make_working_call()) == "The tool is running."


@given(age=st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=30)))
def test_the_poll_interval_grows_with_the_duration_of_the_call(age: timedelta) -> None:
    call = make_working_call()
    pace = TASK_JSON_BY_STATUS.create_task_result(call, now=call.created_at + age)["pollIntervalMs"]
    later = TASK_JSON_BY_STATUS.create_task_result(call, now=call.created_at + age + timedelta(seconds=1))[
        "pollIntervalMs"
    ]
    assert POLL_INTERVAL_MILLISECONDS_MIN <= pace <= later <= POLL_INTERVAL_MILLISECONDS_MAX


def test_an_ended_task_has_no_poll_interval() -> None:
    for outcome in (CallOutcome.RESULT, CallOutcome.UPSTREAM_ERROR, CallOutcome.CANCELLED):
        call = make_ended_call(outcome)
        assert "pollIntervalMs" not in serialize_task(call)
        assert "pollInterval" not in TASK_JSON_BY_STATUS.legacy_task(call, now=call.updated_at)


def test_progress_is_an_observable_change_and_a_lease_is_not() -> None:
    call = make_working_call()
    assert get_observable_state(
        replace(call, lease_owner="another", updated_at=call.updated_at)
    ) == get_observable_state(call)
    assert get_observable_state(replace(call, progress=Progress(progress=1))) != get_observable_state(call)
    assert get_observable_state(make_input_required_call()) != get_observable_state(call)


@pytest.mark.must("L08")
def test_statuses_follow_the_transitions_of_the_specification() -> None:
    onward = {CallStatus.COMPLETED, CallStatus.FAILED, CallStatus.CANCELLED}
    assert STATUS_TRANSITIONS[CallStatus.WORKING] == onward | {CallStatus.INPUT_REQUIRED}
    assert STATUS_TRANSITIONS[CallStatus.INPUT_REQUIRED] == onward | {CallStatus.WORKING}
    assert all(not STATUS_TRANSITIONS[status] for status in FINAL_CALL_STATUSES)
