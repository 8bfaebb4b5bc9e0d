"""Copies of records with some other values."""

from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest

from ringback.domain.call import Call, CallPhase, copy_call
from tests.support.builders import make_call

INSTANT = datetime(2026, 11, 20, 17, tzinfo=UTC)


def test_a_copy_has_the_given_values_and_all_others_of_the_original() -> None:
    original = make_call(arguments={"below": 7}, meta={"acme/trace": "t"}, traceparent="00-1-2-01")
    copied = copy_call(original, phase=CallPhase.RUNNING, runs=3, updated_at=INSTANT)
    expected = replace(original, phase=CallPhase.RUNNING, runs=3, updated_at=INSTANT)
    assert type(copied) is Call
    assert [getattr(copied, field.name) for field in fields(Call)] == [
        getattr(expected, field.name) for field in fields(Call)
    ]


def test_a_copy_leaves_the_original_as_it_is_and_is_frozen_too() -> None:
    original = make_call()
    copied = copy_call(original, runs=original.runs + 1)
    assert copied.runs == original.runs + 1
    assert copied != original
    with pytest.raises(AttributeError):
        copied.runs = 0  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_a_value_of_a_field_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="run_count"):
        copy_call(make_call(), run_count=3)
