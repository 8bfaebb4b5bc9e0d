"""The id of a subscription: the same for equal keys, in every process, and different for different keys."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.protocol.mcp_events.errors import EventError, EventErrorName
from ringback.protocol.mcp_events.subscription_key import (
    ARGUMENTS_BYTES_MAX,
    canonical_arguments,
    subscription_id,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(TEXT, VALUES, max_size=4)


def reverse_keys(value: Any) -> Any:
    match value:
        case dict():
            return {key: reverse_keys(each) for key, each in reversed(list(value.items()))}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case list():
            return [reverse_keys(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


@given(ARGUMENTS)
def test_the_order_of_keys_does_not_change_canonical_arguments(arguments: Mapping[str, Any]) -> None:
    assert canonical_arguments(reverse_keys(arguments)) == canonical_arguments(arguments)


@given(ARGUMENTS)
def test_canonical_arguments_are_the_same_after_they_were_written_and_read(arguments: Mapping[str, Any]) -> None:
    canonical = canonical_arguments(arguments)

    assert canonical_arguments(json.loads(canonical)) == canonical


@pytest.mark.parametrize("text", ['{"n": 1}', '{"n": 1.0}', '{"n": 1e0}', '{"n": 10E-1}', '{ "n":1 }'])
def test_a_number_is_the_same_however_it_is_written(text: str) -> None:
    assert canonical_arguments(json.loads(text)) == '{"n":1}'


@pytest.mark.parametrize("text", ['{"n": 100000000000000000000}', '{"n": 1e20}', '{"n": 1E+20}'])
def test_a_large_number_is_the_same_however_it_is_written(text: str) -> None:
    assert canonical_arguments(json.loads(text)) == '{"n":100000000000000000000}'


def test_keys_are_sorted_by_utf_16_as_rfc_8785_demands() -> None:
    canonical = canonical_arguments({"\ufb33": 1, "\U0001f600": 2, "1": 3, "\u20ac": 4})

    assert list(json.loads(canonical)) == ["1", "\u20ac", "\U0001f600", "\ufb33"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"n": float("nan")},
        {"n": 2**53 + 1},
        {"n": 10**400},
        {"text": "\ud800"},
        {"text": "x" * ARGUMENTS_BYTES_MAX},
    ],
    ids=["nan", "integer", "huge", "surrogate", "size"],
)
def test_arguments_without_a_canonical_form_or_too_many_are_refused(arguments: Mapping[str, Any]) -> None:
    with pytest.raises(EventError) as refused:
        canonical_arguments(arguments)

    assert refused.value.name is EventErrorName.INVALID_PARAMS


def test_an_id_is_the_same_in_every_process() -> None:
    """The value is fixed: subscriptions that clients hold must be found after an upgrade."""
    assert (
        subscription_id("alice", "https://a.example/h?x=1", "call.finished", "{}")
        == "sub_3bce3f7eac9d9cf46951bcec8918eeee"
    )


@pytest.mark.parametrize(
    "other",
    [
        ("bob", "https://a.example/h", "call.finished", "{}"),
        ("alice", "https://a.example/h?", "call.finished", "{}"),
        ("alice", "https://a.example/h", "call.progress", "{}"),
        ("alice", "https://a.example/h", "call.finished", '{"tool":"t"}'),
    ],
)
def test_each_part_of_the_key_changes_the_id(other: tuple[str, str, str, str]) -> None:
    assert subscription_id(*other) != subscription_id("alice", "https://a.example/h", "call.finished", "{}")


def test_parts_of_a_key_are_not_confused() -> None:
    assert subscription_id('a","b', "c", "d", "{}") != subscription_id("a", 'b","c', "d", "{}")
