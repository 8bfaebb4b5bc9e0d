"""Arguments against inputSchemas that come from anywhere."""

from typing import Any

import pytest

from ringback.runner.arguments import ERROR_LENGTH_MAX, ERRORS_MAX, ArgumentChecker

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "maxLength": 3},
        "options": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def errors(schema: Any, arguments: dict[str, Any]) -> list[dict[str, str]]:
    return ArgumentChecker(schema, upstream="git", tool="log").errors(arguments)


def test_arguments_that_fit_have_no_errors() -> None:
    assert errors(SCHEMA, {"path": "a", "options": {"n": 1}}) == []


@pytest.mark.parametrize(
    ("arguments", "pointer", "detail"),
    [
        ({}, "#/arguments", "'path' is a required property"),
        ({"path": "a", "options": {"n": "x"}}, "#/arguments/options/n", "'x' is not of type 'integer'"),
        ({"path": "a", "repo": 1}, "#/arguments", "Additional properties are not allowed ('repo' was unexpected)"),
    ],
)
def test_an_error_points_at_the_place_and_names_the_rule(arguments: dict[str, Any], pointer: str, detail: str) -> None:
    assert errors(SCHEMA, arguments) == [{"pointer": pointer, "detail": detail}]


def test_a_long_value_is_not_echoed() -> None:
    (error,) = errors(SCHEMA, {"path": "secret" * 100})

    assert error == {"pointer": "#/arguments/path", "detail": "the value is too long"}


def test_errors_are_few_and_short() -> None:
    schema = {"properties": {f"p{number}": {"enum": ["x" * 300]} for number in range(20)}}
    found = errors(schema, {f"p{number}": number for number in range(20)})

    assert len(found) == ERRORS_MAX
    assert max(len(error["detail"]) for error in found) <= ERROR_LENGTH_MAX


def test_a_schema_without_a_dialect_is_read_as_2020_12() -> None:
    schema = {"properties": {"pair": {"prefixItems": [{"type": "string"}]}}}

    assert errors(schema, {"pair": [1]}) != []


def test_a_dialect_that_is_named_is_honoured() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"pair": {"items": [{"type": "string"}]}},
    }

    assert errors(schema, {"pair": [1]}) != []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "no-such-type"},
        {"properties": 3},
        {"$schema": 3},
        {"$ref": "#/$defs/absent"},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "#"},
        {"properties": {"path": {"pattern": "("}}},
    ],
)
def test_a_broken_schema_refuses_nothing_and_is_logged_once(schema: Any, caplog: pytest.LogCaptureFixture) -> None:
    checker = ArgumentChecker(schema, upstream="git", tool="log")

    assert checker.errors({"path": "a"}) == []
    assert checker.errors({"path": "a"}) == []
    assert [record.getMessage() for record in caplog.records] == ["tool.schema_unusable"]
