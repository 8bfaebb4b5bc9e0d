"""Forms that are made of a tool's inputSchema: their fields, their bounds, and the values that come back."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.ui.forms.form_values import read_arguments, write_defaults, write_value
from ringback.ui.forms.schema_forms import (
    INPUTS_MAX,
    LEVELS_MAX,
    TEXT_LENGTH_MAX,
    FieldKind,
    SchemaField,
    build_form,
    iterate_fields,
)

Schema = dict[str, Any]


def write_arguments(root: SchemaField, arguments: dict[str, Any]) -> dict[str, list[str]] | None:
    """What a viewer types for these arguments; None if the form cannot show all of them."""
    typed: dict[str, list[str]] = {}
    return typed if write_value(root, arguments, typed) else None


def make_form(properties: Schema, *required: str, **more: object) -> SchemaField:
    return build_form({"type": "object", "properties": properties, "required": list(required), **more})


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
        ({"type": "integer"}, "9" * 20, f"“{'9' * 20}” has more than 64 bits."),
        ({"type": "number"}, "1e9999", "“1e9999” is too large."),
        ({"type": "number"}, "NaN", "“NaN” is no number."),
        ({"enum": ["a"]}, '"b"', "This value is none of the choices. Choose again: the tool may have changed."),
        ({"type": "array", "items": {"type": "integer"}}, "1\n2\nx", "Line 3: “x” is no whole number."),
        ({"type": "object"}, "{", "This is no JSON that the service can store"),
        ({"type": "object"}, "[" * 300 + "]" * 300, "This is no JSON that the service can store"),
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


# -- hostile schemas --------------------------------------------------------------------------------------------------------


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


# -- values that come back --------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["b", "c", "b/c", "d~1e", "d/e", "ä", "$ref"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), min_size=1, max_size=20)
ODD_TEXTS = st.sampled_from(["", " ", "\r", "\n", "a\r\nb", "a\nb\n", "\n\na", "null", "1", "\x00"])
INTEGERS = st.integers(-(2**63), 2**64 - 1)
NUMBERS = st.one_of(INTEGERS, st.floats(allow_nan=False, allow_infinity=False))
SCALARS = st.one_of(st.none(), st.booleans(), INTEGERS, NUMBERS, TEXTS, ODD_TEXTS)
JSON_VALUES = st.recursive(SCALARS, lambda below: st.lists(below, max_size=3), max_leaves=5)
CHOICES = st.lists(st.one_of(st.none(), st.booleans(), st.integers(-5, 5), TEXTS), min_size=2, max_size=5)


def send_by_browser(root: SchemaField, typed: dict[str, list[str]]) -> dict[str, list[str]]:
    """What a browser sends for these values of inputs and textareas (the HTML standard, §4.10.5 and §4.10.11)."""
    inputs = {each.name for each in iterate_fields(root) if each.kind in {FieldKind.TEXT, FieldKind.INTEGER}}

    def send(name: str, text: str) -> str:
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return "".join(lines) if name in inputs else "\r\n".join(lines)

    return {name: [send(name, text) for text in texts] for name, texts in typed.items()}


@st.composite
def fields_with_values(  # noqa: PLR0911 - a case for each kind
    draw: st.DrawFn, level: int = 0
) -> tuple[Schema, Any]:
    """A schema, and a value of it that its field can show."""
    kind = draw(st.sampled_from(["string", "integer", "number", "boolean", "enum", "const", "lines", "boxes", "json"]))
    if level < LEVELS_MAX and draw(st.booleans()):
        return draw(groups_with_values(level=level + 1))
    match kind:
        case "string":
            length = draw(st.sampled_from([{}, {"maxLength": 50}]))
            return {"type": "string", **length}, draw(TEXTS)
        case "integer":
            return {"type": "integer"}, draw(INTEGERS)
        case "number":
            return {"type": "number"}, draw(NUMBERS)
        case "boolean":
            return {"type": "boolean"}, draw(st.booleans())
        case "enum":
            choices = draw(CHOICES)
            return {"enum": choices}, draw(st.sampled_from(choices))
        case "const":
            value = draw(JSON_VALUES)
            return {"const": value}, value
        case "lines":
            items = draw(st.sampled_from(["string", "integer", "number"]))
            values = {"string": TEXTS.filter(str.strip), "integer": INTEGERS, "number": NUMBERS}[items]
            return {"type": "array", "items": {"type": items}}, draw(st.lists(values, min_size=1, max_size=4))
        case "boxes":
            choices = draw(st.lists(TEXTS, min_size=2, max_size=5, unique=True))
            chosen = draw(st.sets(st.sampled_from(choices), min_size=1))
            return {"type": "array", "items": {"enum": choices}}, [each for each in choices if each in chosen]
        case _:
            return {"anyOf": [{"type": "string"}, {"type": "object"}]}, draw(JSON_VALUES)


@st.composite
def groups_with_values(draw: st.DrawFn, level: int = 0) -> tuple[Schema, dict[str, Any]]:
    made = draw(st.dictionaries(KEYS, fields_with_values(level=level), min_size=1, max_size=3))
    required = [key for key in made if draw(st.booleans())]
    present = [key for key in made if key in required or draw(st.booleans())]
    properties = {key: schema for key, (schema, _) in made.items()}
    schema = {"type": "object", "properties": properties, "required": required}
    return schema, {key: made[key][1] for key in present}


@st.composite
def groups_with_odd_values(draw: st.DrawFn) -> tuple[Schema, dict[str, Any]]:
    """The value of one field is any JSON, and one property may be missing."""
    schema, value = draw(groups_with_values())
    if value and draw(st.booleans()):
        value[draw(st.sampled_from(sorted(value)))] = draw(st.one_of(SCALARS, st.lists(SCALARS, max_size=3)))
    if value and draw(st.integers(0, 3)) == 0:
        del value[draw(st.sampled_from(sorted(value)))]
    return schema, value


@given(groups_with_odd_values())
def test_arguments_that_a_form_shows_come_back_as_they_were(made: tuple[Schema, dict[str, Any]]) -> None:
    schema, arguments = made
    root = build_form(schema)
    typed = write_arguments(root, arguments)

    if typed is not None:  # else a viewer writes them as JSON
        read = read_arguments(root, send_by_browser(root, typed))
        assert read.errors == {}
        assert json.dumps(read.arguments, sort_keys=True) == json.dumps(arguments, sort_keys=True)


@given(fields_with_values(level=LEVELS_MAX))
def test_a_required_field_shows_every_value_that_its_schema_allows(made: tuple[Schema, Any]) -> None:
    schema, value = made

    root = make_form({"x": schema}, "x")
    typed = write_arguments(root, {"x": value})

    assert typed is not None
    assert json.dumps(read_arguments(root, send_by_browser(root, typed)).arguments) == json.dumps({"x": value})


@given(st.dictionaries(KEYS, JSON_VALUES, max_size=4))
def test_arguments_written_as_json_come_back_as_they_were(arguments: dict[str, Any]) -> None:
    root = build_form(None)
    typed = write_arguments(root, arguments)

    assert typed is not None
    assert read_arguments(root, typed).arguments == arguments
