"""`value_or_raise`: what the tool returned, or an exception that names how the call ended."""

import json
import pickle
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.receiver import (
    Callback,
    CallNotFinished,
    CallRejected,
    CallTimedOut,
    EventRequestError,
    MalformedBody,
    NotReady,
    NoValue,
    OutcomeCancelled,
    OutcomeError,
    OutcomeUnknown,
    ResultNotIncluded,
    ToolFailed,
    UpstreamFailed,
    parse,
)
from tests.support.signed_posts import make_event_body


def make_callback(name: str = "call.finished", **data: Any) -> Callback:
    callback = parse(json.dumps(make_event_body(name=name, **data)).encode())
    assert isinstance(callback, Callback)
    return callback


def text(*lines: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": line} for line in lines]


IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ({"content": text("7"), "structuredContent": {"result": 7}}, {"result": 7}),
        ({"content": text("one", "two")}, "one\ntwo"),
        ({"content": [*text("see"), IMAGE]}, [*text("see"), IMAGE]),
        ({"content": []}, ""),
        ({"content": [], "structuredContent": {}}, {}),
        ({}, ""),
    ],
)
def test_a_result_is_its_structured_content_or_its_text_or_its_blocks(result: dict[str, Any], value: Any) -> None:
    callback = make_callback(outcome="result", result=result)

    assert callback.value_or_raise() == value
    assert callback.result == result


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        ("tool_error", ToolFailed),
        ("upstream_error", UpstreamFailed),
        ("rejected", CallRejected),
        ("timed_out", CallTimedOut),
        ("unknown", OutcomeUnknown),
        ("cancelled", OutcomeCancelled),
        ("evaporated", OutcomeError),
    ],
)
@pytest.mark.requirement("R33")
def test_every_other_outcome_is_an_exception_of_its_own(outcome: str, kind: type[OutcomeError]) -> None:
    callback = make_callback(outcome=outcome, error={"code": -32603, "message": "The deadline passed."})
    untold = make_callback(outcome=outcome)

    with pytest.raises(OutcomeError) as raised:
        callback.value_or_raise()
    assert type(raised.value) is kind
    assert (raised.value.code, raised.value.message, raised.value.call_id) == (-32603, "The deadline passed.", "call_1")
    with pytest.raises(OutcomeError) as raised:
        untold.value_or_raise()
    assert type(raised.value) is kind
    assert raised.value.code == outcome
    assert raised.value.message
    assert "call_1" in str(raised.value)


def test_a_tool_s_error_has_the_tool_s_text_if_the_callback_includes_it() -> None:
    result = {"content": text("no such table"), "isError": True}

    with pytest.raises(ToolFailed, match="no such table") as raised:
        make_callback(outcome="tool_error", result=result).value_or_raise()

    assert raised.value.result == result
    with pytest.raises(ToolFailed) as bare:
        make_callback(outcome="tool_error").value_or_raise()
    assert bare.value.result is None


def test_a_thin_callback_says_where_the_result_is() -> None:
    with pytest.raises(ResultNotIncluded, match="resume token"):
        make_callback(outcome="result").value_or_raise()


@pytest.mark.parametrize("name", ["call.progress", "call.input_required", "webhook.test"])
def test_a_callback_that_reports_no_end_has_no_value(name: str) -> None:
    with pytest.raises(CallNotFinished, match=name):
        make_callback(name, result={"content": text("early")}, outcome="result").value_or_raise()
    assert issubclass(CallNotFinished, NoValue)


@pytest.mark.parametrize("error", ["broken", 7, [], {"code": [], "message": 7}, {"message": None}])
def test_an_odd_error_member_does_not_hide_the_outcome(error: Any) -> None:
    with pytest.raises(CallTimedOut) as raised:
        make_callback(outcome="timed_out", error=error).value_or_raise()

    assert (raised.value.code, raised.value.message) == ("timed_out", CallTimedOut.default_message)


def test_a_failure_may_travel_to_another_process() -> None:
    with pytest.raises(ToolFailed) as raised:
        make_callback(outcome="tool_error", result={"content": text("no such table")}).value_or_raise()

    copy = pickle.loads(pickle.dumps(raised.value))  # noqa: S301 - our own bytes

    assert (str(copy), copy.result, copy.code) == (str(raised.value), raised.value.result, "tool_error")


@pytest.mark.parametrize(
    "error", [NotReady(3, reason="no checkpoint"), EventRequestError(-32601, "no polling", {"a": 1})]
)
def test_errors_that_handlers_and_connections_raise_can_be_copied_to_another_process(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes

    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "content", "code", "message", "structuredContent"]), inner, max_size=4
        )
    ),
    max_leaves=10,
)


@given(
    st.dictionaries(st.sampled_from(["outcome", "result", "error", "call_id"]), json_values, max_size=4),
    st.sampled_from(["result", "tool_error", "unknown", None]),
)
def test_whatever_a_callback_contains_it_has_a_value_or_one_of_the_exceptions(
    data: dict[str, Any], outcome: str | None
) -> None:
    try:
        callback = make_callback(**(data if outcome is None else data | {"outcome": outcome}))
    except MalformedBody:
        return
    with suppress(OutcomeError, NoValue):
        callback.value_or_raise()
