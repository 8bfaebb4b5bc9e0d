"""The arguments that `ringback check-server` makes from an `inputSchema`: valid ones, mistyped ones, or none."""

from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from ringback.cli.server_checks.arguments import make_arguments, make_mistyped_arguments, make_reordered_arguments

Json = dict[str, Any]

ARGUMENTS: Final[tuple[Json, ...]] = (
    {"type": ["string", "null"]},
    {"type": ["null", "integer"], "minimum": 7},
    {"type": "string", "maxLength": 2},
    {"type": "string", "minLength": 7, "maxLength": 8},
    {"type": "integer", "maximum": -3},
    {"type": "integer", "exclusiveMinimum": 9},
    {"type": "number", "exclusiveMaximum": 0.5},
    {"type": "number", "minimum": 1.5, "maximum": 2.5},
    {"type": ["array", "object"], "items": {"type": "string"}},
    {"type": ["number", "string", "boolean", "array"]},
    {"type": "object", "properties": {"a": {"type": ["boolean", "null"]}}, "required": ["a"]},
)
"""What servers write for one argument."""
UNFOLLOWED: Final[tuple[Json, ...]] = (
    {"type": "string", "minLength": 10**30},
    {"type": "integer", "minimum": 0.2, "maximum": 0.8},
    {"type": "integer", "multipleOf": 7},
    {"type": "string", "not": {"const": "check"}},
    {"type": "object", "minProperties": 1},
)
"""Schemas for which no value is made."""


def make_schema(argument: Json) -> Json:
    return {"type": "object", "properties": {"a": argument, "b": {"type": "string"}}, "required": ["a"]}


def is_valid(schema: Json, value: Json) -> bool:
    return Draft202012Validator(schema).is_valid(value)  # pyright: ignore[reportUnknownMemberType]


@pytest.mark.parametrize("argument", ARGUMENTS, ids=str)
def test_made_arguments_are_valid_and_mistyped_ones_are_not(argument: Json) -> None:
    schema = make_schema(argument)
    made = make_arguments(schema)
    assert made is not None
    mistyped, reordered = make_mistyped_arguments(schema, made), make_reordered_arguments(schema, made)
    assert mistyped is not None
    assert reordered is not None

    assert [is_valid(schema, each) for each in (made, *reordered)] == [True, True, True]
    assert not is_valid(schema, mistyped)


@pytest.mark.parametrize("argument", UNFOLLOWED, ids=str)
def test_no_arguments_are_made_for_a_schema_that_may_refuse_them(argument: Json) -> None:
    assert make_arguments(make_schema(argument)) is None


def test_no_arguments_are_made_where_one_of_several_is_required() -> None:
    either = {"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}]}

    assert make_arguments(either) is None


def test_a_type_that_does_not_exist_forbids_nothing() -> None:
    assert make_mistyped_arguments({"properties": {"a": {"type": ["text", {}]}}}, {}) is None
