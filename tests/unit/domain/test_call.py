import re
from dataclasses import replace

import pytest

from ringback.domain import call as calls
from ringback.domain.call import (
    CANCELLED,
    FINAL,
    INTERNAL_ERROR,
    STATUS_OF,
    TRANSITIONS,
    IllegalTransition,
    Outcome,
    Status,
    advance,
    answered,
    failed,
    finish,
    request_hash,
)
from tests.support.clock import START
from tests.support.examples import CALL


@pytest.mark.requirement("R33")
def test_every_outcome_has_one_final_status() -> None:
    assert set(STATUS_OF) == set(Outcome)
    assert set(STATUS_OF.values()) == FINAL


def test_every_status_has_its_row_in_the_table_and_final_ones_lead_nowhere() -> None:
    assert set(TRANSITIONS) == set(Status)
    assert {status for status, followers in TRANSITIONS.items() if not followers} == FINAL


@pytest.mark.requirement("R33")
def test_a_tool_that_says_error_has_answered() -> None:
    assert answered(b"{}", is_error=True).outcome is Outcome.TOOL_ERROR
    assert answered(b"{}", is_error=False).outcome is Outcome.RESULT
    assert STATUS_OF[Outcome.TOOL_ERROR] is Status.COMPLETED


@pytest.mark.requirement("R33")
def test_a_failure_in_our_words_repeats_its_outcome_where_mcp_clients_look() -> None:
    assert failed(Outcome.TIMED_OUT, "The deadline passed.").error == {
        "code": INTERNAL_ERROR,
        "message": "The deadline passed.",
        "data": {"outcome": "timed_out"},
    }


@pytest.mark.requirement("R33")
def test_a_cancelled_call_has_neither_result_nor_error() -> None:
    ended = finish(CALL, CANCELLED, now=START, result_retention_seconds=60)
    assert (ended.status, ended.result_sha256, ended.error) == (Status.CANCELLED, None, None)


def test_only_finish_ends_a_call() -> None:
    with pytest.raises(IllegalTransition, match="without an outcome"):
        advance(CALL, Status.COMPLETED, now=START)


def test_an_illegal_step_says_which_call_and_which_step() -> None:
    over = finish(CALL, CANCELLED, now=START, result_retention_seconds=60)
    with pytest.raises(IllegalTransition, match=f"{CALL.id}: cancelled -> completed"):
        finish(over, answered(b"{}", is_error=False), now=START, result_retention_seconds=60)


def test_a_call_never_prints_what_was_asked_or_answered() -> None:
    call = replace(
        CALL, arguments={"password": "hunter2"}, meta={"k": "hunter2"}, error={"code": 1, "message": "hunter2"}
    )
    assert "hunter2" not in repr(call)
    assert "hunter2" not in repr(answered(b"hunter2", is_error=False))
    assert "hunter2" not in repr(calls.refused({"message": "hunter2"}))


@pytest.mark.requirement("R13")
def test_the_same_request_hashes_the_same_whatever_the_order_of_its_arguments() -> None:
    one = request_hash(upstream="git", tool="log", arguments={"a": 1, "b": {"c": 2, "d": 3}}, callback_url=None)
    two = request_hash(upstream="git", tool="log", arguments={"b": {"d": 3, "c": 2}, "a": 1}, callback_url=None)
    assert one == two
    assert re.fullmatch(r"[0-9a-f]{64}", one)


@pytest.mark.requirement("R13")
@pytest.mark.parametrize(
    "other",
    [
        request_hash(upstream="hub", tool="log", arguments={"a": 1}, callback_url=None),
        request_hash(upstream="git", tool="tag", arguments={"a": 1}, callback_url=None),
        request_hash(upstream="git", tool="log", arguments={"a": True}, callback_url=None),
        request_hash(upstream="git", tool="log", arguments={"a": 1}, callback_url="https://agent.example/"),
        request_hash(upstream="gitlo", tool="g", arguments={"a": 1}, callback_url=None),
    ],
    ids=["upstream", "tool", "arguments", "callback", "shifted"],
)
def test_any_difference_makes_another_request(other: str) -> None:
    assert other != request_hash(upstream="git", tool="log", arguments={"a": 1}, callback_url=None)
