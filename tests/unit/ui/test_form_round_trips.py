"""Arguments that a form of a schema shows come back from the browser as they were."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ringback.ui.forms.form_fields import FieldKind, SchemaField, iterate_fields
from ringback.ui.forms.form_values import read_arguments
from ringback.ui.forms.schema_forms import LEVELS_MAX, build_form
from tests.support.schema_forms import Schema, make_form, write_arguments

KEYS = st.sampled_from(["b", "c", "b/c", "d~1e", "d/e", "ä", "$ref"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), min_size=1, max_size=20)
ODD_TEXTS = st.sampled_from(["", " ", "\r", "\n", "a\r\nb", "a\nb\n", "\n\na", "null", "1", "\x00"])
INTEGERS = st.integers(1 - 10**300, 10**300 - 1)
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
