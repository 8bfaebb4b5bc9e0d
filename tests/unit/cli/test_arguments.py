"""`--arg name=value`: values that become JSON, values that stay strings, and rejected ones."""

from datetime import UTC, datetime
from typing import Any

import pytest
import typer

from ringback.cli.arguments import parse_arguments, parse_time, with_offset

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "message": {"type": "string"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "listed": {"type": ["string", "null"]},
        "nullable": {"type": "string", "enum": ["a", "null"], "nullable": True},
        "count": {"type": "integer"},
        "either": {"type": ["string", "integer"]},
        "anything": True,
    },
}


VALUES: list[tuple[str, Any]] = [
    ("count=3", 3),
    ("count=three", "three"),
    ("anything=[1, {}]", [1, {}]),
    ("unknown=null", None),
    ("unknown=NaN", "NaN"),
    ("unknown=-Infinity", "-Infinity"),
    ("unknown=1e999", "1e999"),
    ("unknown=" + "[" * 100_000, "[" * 100_000),
    ("unknown=", ""),
    ("unknown=a=b", "a=b"),
    ("message=3", "3"),
    ("maybe=true", "true"),
    ("listed=null", None),
    ("maybe=null", None),
    ("nullable=null", None),
    ("nullable=a", "a"),
    ('nullable="null"', "null"),
    ('maybe="a"', '"a"'),
    ("message=null", "null"),
    ('message="null"', '"null"'),
    ("either=3", 3),
]


@pytest.mark.parametrize(("pair", "value"), VALUES)
def test_a_value_is_json_unless_the_schema_requires_a_string(pair: str, value: Any) -> None:
    name = pair.partition("=")[0]

    assert parse_arguments([pair], json_arguments=None, input_schema=SCHEMA) == {name: value}


MUTE: list[dict[str, Any] | None] = [None, {}, {"properties": []}, {"properties": {"x": {"type": [{}], "anyOf": None}}}]


@pytest.mark.parametrize("schema", MUTE)
def test_a_schema_without_a_type_accepts_json(schema: dict[str, Any] | None) -> None:
    assert parse_arguments(["x=3"], json_arguments=None, input_schema=schema) == {"x": 3}


def test_single_arguments_go_over_the_whole_object() -> None:
    arguments = parse_arguments(["b=2"], json_arguments='{"a": 1, "b": 1}', input_schema=None)

    assert arguments == {"a": 1, "b": 2}


@pytest.mark.parametrize("pair", ["count", "=3", ""])
def test_an_argument_without_a_name_is_rejected(pair: str) -> None:
    with pytest.raises(typer.BadParameter, match="NAME=VALUE"):
        parse_arguments([pair], json_arguments=None, input_schema=None)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": NaN}', '{"a": 1e999}', "[" * 100_000])
def test_arguments_that_are_no_json_object_are_rejected(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="JSON object"):
        parse_arguments([], json_arguments=text, input_schema=None)


@pytest.mark.parametrize("pairs", [[], ['unknown={"a": 1, "b": 2, "a": 3}']])
def test_an_object_with_two_members_of_one_name_is_rejected_as_the_service_does(pairs: list[str]) -> None:
    with pytest.raises(typer.BadParameter, match="the member 'a' twice"):
        parse_arguments(pairs, json_arguments=None if pairs else '{"x": [{"a": 1, "a": 1}]}', input_schema=None)


def test_the_first_time_of_the_calendar_has_an_offset_too() -> None:
    """Python cannot convert it from the machine's own offset; programs send it for no limit."""
    first = datetime(1, 1, 1)  # noqa: DTZ001 - without an offset

    assert with_offset(first) == first.replace(tzinfo=UTC)


@pytest.mark.parametrize("text", ["tomorrow", "2026-13-01", "2026-12-01T24:00", "2026-12-01T10:00:00+99:00", ""])
def test_what_is_no_time_is_refused_with_an_example_and_without_the_formats_of_strptime(text: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        parse_time(text)

    assert "2026-11-20T17:00:00Z" in refused.value.message
    assert "%" not in refused.value.message
