"""Forms that are made of a tool's inputSchema: their fields, their bounds, and the values that come back."""

import json
import time
from typing import Any

import pytest

from ringback.domain import json_size
from ringback.ui.forms.form_fields import FieldKind, SchemaField, iterate_fields
from ringback.ui.forms.form_values import read_arguments, write_defaults
from ringback.ui.forms.schema_forms import INPUTS_MAX, LEVELS_MAX, build_form
from ringback.ui.forms.schema_reading import TEXT_LENGTH_MAX
from tests.support.schema_forms import Schema, make_form, write_arguments


def list_kinds(root: SchemaField) -> dict[str, str]:
    return {each.key: str(each.kind) for each in root.fields}


def test_each_type_has_a_field_of_its_own() -> None:
    root = make_form(
        {
            "text": {"type": "string"},
            "short": {"type": "string", "maxLength": 20},
            "number": {"type": "number"},
            "integer": {"type": "integer"},
            "boolean": {"type": "boolean"},
            "enum": {"enum": ["a", 1, None]},
            "constant": {"const": "v1"},
            "lines": {"type": "array", "items": {"type": "string"}},
            "boxes": {"type": "array", "items": {"enum": ["a", "b"]}},
            "group": {"type": "object", "properties": {"depth": {"type": "integer"}}},
            "free": {"type": "object"},
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "anything": True,
            "forbidden": False,
        },
        "constant",
    )

    assert list_kinds(root) == {
        "text": "long_text",
        "short": "text",
        "number": "number",
        "integer": "integer",
        "boolean": "choice",
        "enum": "choice",
        "constant": "constant",
        "lines": "lines",
        "boxes": "choices",
        "group": "group",
        "free": "json",
        "either": "json",
        "anything": "json",
    }


def test_optional_and_referenced_types_as_pydantic_writes_them_have_their_fields() -> None:
    root = make_form(
        {
            "name": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Name"},
            "count": {"type": ["integer", "null"]},
            "options": {"anyOf": [{"$ref": "#/$defs/Options"}, {"type": "null"}]},
            "order": {"$ref": "#/$defs/Order", "description": "How to sort"},
        },
        **{
            "$defs": {
                "Options": {"type": "object", "properties": {"deep": {"type": "boolean"}}},
                "Order": {"enum": ["up", "down"], "type": "string"},
            }
        },
    )

    assert list_kinds(root) == {"name": "long_text", "count": "integer", "options": "group", "order": "choice"}
    assert [each.is_nullable for each in root.fields] == [True, True, True, False]
    assert root.fields[3].description == "How to sort"


def test_values_come_from_what_was_typed_and_empty_fields_are_left_out() -> None:
    root = make_form(
        {
            "path": {"type": "string"},
            "count": {"type": "integer"},
            "ratio": {"type": "number"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "nothing": {"type": ["string", "null"]},
            "options": {"type": "object", "properties": {"deep": {"type": "boolean"}, "kind": {"const": "x"}}},
            "version": {"const": 2},
        },
        *("path", "nothing", "version"),
    )

    read = read_arguments(
        root,
        {
            "arguments/path": ["/srv\r\n/repo"],
            "arguments/count": [" 12 "],
            "arguments/ratio": ["1e3"],
            "arguments/tags": ["a b\r\n\r\nc"],
            "arguments/options/deep": [""],
        },
    )

    assert read.errors == {}
    assert read.arguments == {
        "path": "/srv\n/repo",
        "count": 12,
        "ratio": 1000.0,
        "tags": ["a b", "c"],
        "nothing": None,
        "version": 2,
    }


@pytest.mark.parametrize(
    ("schema", "typed", "error"),
    [
        ({"type": "integer"}, "1.5", "“1.5” is no whole number."),
        ({"type": "integer"}, "9" * 301, f"“{'9' * 40}…” is no whole number."),
        ({"type": "number"}, "1e9999", "“1e9999” is too large."),
        ({"type": "number"}, "NaN", "“NaN” is no number."),
        ({"enum": ["a"]}, '"b"', "This value is none of the choices. Choose again: the tool may have changed."),
        ({"type": "array", "items": {"type": "integer"}}, "1\n2\nx", "Line 3: “x” is no whole number."),
        ({"type": "object"}, "{", "This is not JSON: "),
        ({"type": "object"}, '{"a": 1e400}', "This has a number beyond the range of doubles, at line 1, column 7."),
        ({"type": "object"}, '{"a": {"b": 1, "b": 2}}', "This has an object with two members named 'b'."),
        (
            {"type": "object"},
            "[" * 300 + "]" * 300,
            "This has an integer of more than 300 digits, or more than 250 levels.",
        ),
        ({"type": "string"}, "", "This field is required. For an empty text, write the arguments as JSON."),
        ({"type": "boolean"}, "", "Choose a value."),
    ],
)
def test_what_is_no_value_has_an_error_that_says_why(schema: Schema, typed: str, error: str) -> None:
    is_required = not typed
    read = read_arguments(make_form({"x": schema}, *(["x"] if is_required else [])), {"arguments/x": [typed]})

    assert list(read.errors) == ["arguments/x"]
    assert read.errors["arguments/x"].startswith(error)


def test_the_fields_of_an_optional_group_are_required_only_if_one_of_them_is_filled_in() -> None:
    group = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a"]}
    root = make_form({"group": group})

    assert read_arguments(root, {}).arguments == {}
    assert read_arguments(root, {}).errors == {}
    assert list(read_arguments(root, {"arguments/group/b": ["1"]}).errors) == ["arguments/group/a"]


def test_defaults_are_shown_unless_they_would_make_an_optional_group_an_argument() -> None:
    group = {"type": "object", "properties": {"deep": {"type": "boolean", "default": True}}}
    root = make_form({"count": {"type": "integer", "default": 5}, "kept": group, "optional": group}, "kept")

    assert write_defaults(root) == {"arguments/count": ["5"], "arguments/kept/deep": ["true"]}


def test_lists_with_more_lines_than_a_body_may_have_values_are_refused_before_a_line_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two million numbers in a form took the event loop five seconds."""
    monkeypatch.setattr(json_size, "VALUES_MAX", 10)
    numbers = {"type": "array", "items": {"type": "integer"}}
    root = make_form({"a": numbers, "b": numbers, "text": {"type": "string"}})
    typed = {"arguments/a": ["1\n" * 6], "arguments/text": ["line\n" * 100]}

    allowed = read_arguments(root, typed)
    refused = read_arguments(root, typed | {"arguments/b": ["1\n" * 6]})

    assert (allowed.errors, allowed.arguments["a"]) == ({}, [1] * 6)
    assert refused.errors == {"arguments/b": "These are more than 10 lines."}


def test_arguments_that_no_schema_describes_are_written_as_json() -> None:
    schemas: list[Any] = [{"type": "array"}, {"anyOf": []}, {"$ref": "https://other.example"}, "no schema", None, 7]
    for schema in schemas:
        root = build_form(schema)
        assert root.kind is FieldKind.JSON
        assert read_arguments(root, {"arguments": ['{"a": [1]}']}).arguments == {"a": [1]}
        assert read_arguments(root, {}).arguments == {}
        assert read_arguments(root, {"arguments": ["[1]"]}).errors.keys() == {"arguments"}


LONG, SHORT = {"type": "string"}, {"type": "string", "maxLength": 20}
BOXES = {"type": "array", "items": {"enum": ["a", "b"]}}
LINES = {"type": "array", "items": {"type": "string"}}
GROUP = {"type": "object", "properties": {"a": LONG, "b": LONG}, "required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (LONG, ""),
        (LONG, "a\rb"),
        (SHORT, "a\nb"),
        (LONG, 7),
        (BOXES, []),
        (BOXES, ["b", "a"]),
        (BOXES, ["a", "a"]),
        (BOXES, ["c"]),
        (LINES, []),
        (LINES, [" "]),
        (LINES, ["a", ""]),
        (LINES, ["a\nb"]),
        (LINES, ["a", 7]),
        ({"type": "integer"}, 1.0),
        ({"type": "integer"}, True),
        ({"type": "boolean"}, 1),
        (GROUP, {}),
        (GROUP, {"b": "without a"}),
        (GROUP, {"a": "1", "c": "unknown"}),
        ({"type": ["string", "null"]}, None),
    ],
)
def test_a_value_that_its_field_cannot_show_is_left_to_json(schema: Schema, value: object) -> None:
    assert write_arguments(make_form({"x": schema}), {"x": value}) is None


def test_properties_whose_names_contain_slashes_have_fields_of_their_own() -> None:
    root = make_form({"a": {"type": "object", "properties": {"b": LONG}}, "a/b": LONG, "a~1b": LONG})
    arguments = {"a": {"b": "1"}, "a/b": "2", "a~1b": "3"}

    typed = write_arguments(root, arguments)

    assert typed is not None
    assert len(typed) == 3
    assert read_arguments(root, typed).arguments == arguments


def nest(levels: int) -> Schema:
    schema: Schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


def chain(length: int) -> Schema:
    definitions = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(length)}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": definitions}


def fan_out(levels: int) -> Schema:
    """Each level refers to the next one ten times: 10^levels fields."""
    definitions: Schema = {"d0": {"type": "string"}}
    for number in range(levels):
        below = {f"p{each}": {"$ref": f"#/$defs/d{number}"} for each in range(10)}
        definitions[f"d{number + 1}"] = {"type": "object", "properties": below}
    return {"$ref": f"#/$defs/d{levels}", "$defs": definitions}


HOSTILE: dict[str, Any] = {
    "deep": nest(200),
    "wide": {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(100_000)}},
    "fan-out": fan_out(8),
    "recursive": {"type": "object", "properties": {"self": {"$ref": "#"}}},
    "self-reference": {"$ref": "#"},
    "chain": chain(10_000),
    "long enum": {"type": "object", "properties": {"x": {"enum": list(range(100_000))}}},
    "long choices": {"type": "object", "properties": {"x": {"enum": ["x" * 100_000]}}},
    "long texts": {"type": "object", "properties": {"x": {"title": "x" * 10**6, "description": "y" * 10**6}}},
    "long key": {"type": "object", "properties": {"x" * 10**6: {}}},
    "odd keys": {"type": "object", "properties": {"a\x00b": {}, "\u202egpj": {}}},
    "odd types": {"type": "object", "properties": {"x": {"type": {}, "title": 7, "enum": 3, "minimum": "1"}}},
    "odd properties": {"type": "object", "properties": [1, 2]},
    "odd required": {"type": "object", "properties": {"x": {}}, "required": {"x": 1}},
    "null": {"anyOf": [{"type": "null"}, {"type": "null"}]},
    "surrogate": {"type": "object", "properties": {"x": {"enum": ["\ud800"]}}},
    "many checkboxes": {
        "type": "object",
        "properties": {f"p{n}": {"type": "array", "items": {"enum": list(range(20))}} for n in range(50)},
    },
    "huge numbers": {
        "type": "object",
        "properties": {"x": {"type": "integer", "minimum": 10**400, "default": 10**400}},
    },
    "deep default": {"type": "object", "properties": {"x": {"default": json.loads("[" * 900 + "]" * 900)}}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_makes_a_small_form_in_a_short_time(name: str) -> None:
    started = time.process_time()
    root = build_form(HOSTILE[name])
    spent = time.process_time() - started

    fields = list(iterate_fields(root))
    assert spent < 0.5
    assert len(fields) <= INPUTS_MAX
    assert max(each.name.count("/") for each in fields) <= LEVELS_MAX + 1
    assert all(len(each.title) <= TEXT_LENGTH_MAX and len(each.description) <= TEXT_LENGTH_MAX for each in fields)
    assert write_defaults(root) is not None
    assert read_arguments(root, {}).arguments is not None
