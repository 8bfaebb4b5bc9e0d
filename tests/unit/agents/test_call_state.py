"""What an agent's framework gets of each end of a call."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ringback.agents import CallStateKind
from ringback.agents.call_state import (
    ERROR_CHARACTERS_MAX,
    RESULT_BYTES_MAX,
    build_call_state,
    has_readable_result,
    read_texts,
)
from ringback.client import Call
from ringback.schemas import examples


def make_call(**changes: Any) -> Call:
    return Call.model_validate({**examples.FINISHED_CALL, **changes})


def make_failed_call(outcome: str, message: str = "the upstream's words") -> Call:
    status = "cancelled" if outcome == "cancelled" else "failed"
    return make_call(status=status, outcome=outcome, error={"code": outcome, "message": message}, result_bytes=None)


def test_a_result_is_the_tools_own() -> None:
    state = build_call_state(make_call(), examples.RESULT)

    assert (state.kind, state.result, state.text) == (CallStateKind.RESULT, examples.RESULT, "")
    assert state.changed_at == datetime(2026, 11, 20, 17, 0, 6, tzinfo=UTC)


def test_a_tool_error_is_the_tools_own_text() -> None:
    result = {"content": [{"type": "text", "text": "no such"}, {"type": "text", "text": "branch"}], "isError": True}

    state = build_call_state(make_call(outcome="tool_error"), result)

    assert (state.kind, state.text) == (CallStateKind.TOOL_ERROR, "no such\nbranch")


def test_a_tool_error_without_a_text_names_the_tool() -> None:
    state = build_call_state(make_call(outcome="tool_error"), {"content": [], "isError": True})

    assert state.text == "The tool 'git_log' reported an error without a text."


@pytest.mark.parametrize("outcome", ["result", "tool_error"])
def test_a_result_that_was_not_read_is_none(outcome: str) -> None:
    state = build_call_state(make_call(outcome=outcome))

    assert (state.is_final, state.result, state.text) == (True, None, "")


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        ("upstream_error", "The tool 'git_log' failed on its server: the upstream's words"),
        ("rejected", "The tool 'git_log' was not called: the upstream's words"),
        (
            "timed_out",
            "The tool 'git_log' did not end within its time limit, and was stopped. It may have done part of its work.",
        ),
        (
            "unknown",
            "The tool 'git_log' may have done its work, but its outcome is unknown. Check before you call it again.",
        ),
        ("cancelled", "The call of the tool 'git_log' was cancelled."),
        (
            "an outcome of a later version",
            "The tool 'git_log' may have done its work, but its outcome is unknown. Check before you call it again.",
        ),
    ],
)
def test_each_failure_is_a_sentence_for_the_model(outcome: str, text: str) -> None:
    state = build_call_state(make_failed_call(outcome))

    assert (state.kind, state.text, state.result) == (CallStateKind.FAILED, text, None)


def test_the_text_of_an_error_is_limited() -> None:
    state = build_call_state(make_failed_call("upstream_error", "x" * 100_000))

    assert len(state.text) == ERROR_CHARACTERS_MAX + 1


def test_questions_are_plain_data() -> None:
    state = build_call_state(Call.model_validate(examples.INPUT_REQUIRED_CALL))

    assert (state.kind, state.is_final) == (CallStateKind.INPUT_REQUIRED, False)
    assert state.input_requests == examples.INPUT_REQUIRED_CALL["input_requests"]


def test_a_call_whose_questions_are_all_answered_is_working() -> None:
    call = Call.model_validate({**examples.INPUT_REQUIRED_CALL, "input_requests": {}})

    assert build_call_state(call).kind is CallStateKind.WORKING


def test_a_result_too_large_for_a_history_is_named_and_not_read() -> None:
    call = make_call(result_bytes=RESULT_BYTES_MAX + 1)

    state = build_call_state(call)

    assert not has_readable_result(call)
    assert state.result is not None
    assert f"GET /v1/calls/{call.id}/result" in read_texts(state.result)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [{"type": "image", "data": "", "mimeType": "image/png"}]}, ""),
        ({"content": [], "structuredContent": {"primes": 3}}, '{"primes": 3}'),
        ({}, ""),
    ],
)
def test_a_result_without_text_blocks_reads_as_its_structured_content(result: dict[str, Any], text: str) -> None:
    assert read_texts(result) == text
