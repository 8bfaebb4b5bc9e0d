import re
from dataclasses import replace

import pytest

from ringback.domain.call import (
    FINAL_CALL_STATUSES,
    STATUS_BY_OUTCOME,
    STATUS_TRANSITIONS,
    CallStatus,
    IllegalTransition,
    advance_status,
    apply_completion,
    compute_request_hash,
)
from ringback.domain.call_outcome import (
    CANCELLED_COMPLETION,
    INTERNAL_ERROR,
    CallOutcome,
    completion_from_result,
    completion_from_upstream_error,
    failed_completion,
)
from tests.support.clock import START
from tests.support.examples import CALL


@pytest.mark.requirement("R33")
def test_every_outcome_has_one_final_status() -> None:
    assert set(STATUS_BY_OUTCOME) == set(CallOutcome)
    assert set(STATUS_BY_OUTCOME.values()) == FINAL_CALL_STATUSES


def test_every_status_has_its_row_in_the_table_and_final_ones_lead_nowhere() -> None:
    assert set(STATUS_TRANSITIONS) == set(CallStatus)
    assert {status for status, followers in STATUS_TRANSITIONS.items() if not followers} == FINAL_CALL_STATUSES


@pytest.mark.requirement("R33")
def test_a_tool_that_says_error_has_answered() -> None:
    assert completion_from_result(b"{}", is_error=True).outcome is CallOutcome.TOOL_ERROR
    assert completion_from_result(b"{}", is_error=False).outcome is CallOutcome.RESULT
    assert STATUS_BY_OUTCOME[CallOutcome.TOOL_ERROR] is CallStatus.COMPLETED


@pytest.mark.requirement("R33")
def test_a_failure_of_ours_repeats_its_outcome_where_mcp_clients_read_it() -> None:
    assert failed_completion(CallOutcome.TIMED_OUT, "The deadline passed.").error == {
        "code": INTERNAL_ERROR,
        "message": "The deadline passed.",
        "data": {"outcome": "timed_out"},
    }


@pytest.mark.requirement("R33")
def test_a_cancelled_call_has_neither_result_nor_error() -> None:
    ended = apply_completion(CALL, CANCELLED_COMPLETION, now=START, result_retention_seconds=60)
    assert (ended.status, ended.result_sha256, ended.error) == (CallStatus.CANCELLED, None, None)


def test_only_finish_ends_a_call() -> None:
    with pytest.raises(IllegalTransition, match="without an outcome"):
        advance_status(CALL, CallStatus.COMPLETED, now=START)


def test_an_illegal_step_says_which_call_and_which_step() -> None:
    over = apply_completion(CALL, CANCELLED_COMPLETION, now=START, result_retention_seconds=60)
    with pytest.raises(IllegalTransition, match=f"{CALL.id}: cancelled -> completed"):
        apply_completion(over, completion_from_result(b"{}", is_error=False), now=START, result_retention_seconds=60)


def test_the_repr_of_a_call_shows_no_input_requests_and_no_answers() -> None:
    call = replace(
        CALL, arguments={"password": "hunter2"}, meta={"k": "hunter2"}, error={"code": 1, "message": "hunter2"}
    )
    assert "hunter2" not in repr(call)
    assert "hunter2" not in repr(completion_from_result(b"hunter2", is_error=False))
    assert "hunter2" not in repr(completion_from_upstream_error({"message": "hunter2"}))


@pytest.mark.requirement("R13")
def test_the_same_request_hashes_the_same_whatever_the_order_of_its_arguments() -> None:
    one = compute_request_hash(upstream="git", tool="log", arguments={"a": 1, "b": {"c": 2, "d": 3}}, callback_url=None)
    two = compute_request_hash(upstream="git", tool="log", arguments={"b": {"d": 3, "c": 2}, "a": 1}, callback_url=None)
    assert one == two
    assert re.fullmatch(r"[0-9a-f]{64}", one)


@pytest.mark.requirement("R13")
@pytest.mark.parametrize(
    "other",
    [
        compute_request_hash(upstream="hub", tool="log", arguments={"a": 1}, callback_url=None),
        compute_request_hash(upstream="git", tool="tag", arguments={"a": 1}, callback_url=None),
        compute_request_hash(upstream="git", tool="log", arguments={"a": True}, callback_url=None),
        compute_request_hash(upstream="git", tool="log", arguments={"a": 1}, callback_url="https://agent.example/"),
        compute_request_hash(upstream="gitlo", tool="g", arguments={"a": 1}, callback_url=None),
    ],
    ids=["upstream", "tool", "arguments", "callback", "shifted"],
)
def test_any_difference_makes_another_request(other: str) -> None:
    assert other != compute_request_hash(upstream="git", tool="log", arguments={"a": 1}, callback_url=None)
