"""Reads what a form needs from a JSON Schema of an upstream: types, choices, limits, references. Each text is bounded."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeGuard, cast

from ringback.domain import jsontext
from ringback.ui.forms.form_fields import Choice, FieldKind

CHOICES_MAX: Final = 200
REQUIRED_MAX: Final = 1_000
CHOICE_LENGTH_MAX: Final = 200
TEXT_LENGTH_MAX: Final = 1_000
"""Characters of a title or a description that a form shows."""
SHORT_TEXT_LENGTH_MAX: Final = 100
"""A string of at most so many characters gets one line; a longer one a textarea."""
Schema = Mapping[str, Any]


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def bound_text(text: object, length_max: int = TEXT_LENGTH_MAX) -> str:
    """A text of an upstream, cut, and without characters that change how other text is shown."""
    if not isinstance(text, str):
        return ""
    cut = text if len(text) <= length_max else f"{text[: length_max - 1]}…"
    return "".join(each if each.isprintable() or each == "\n" else " " for each in cut).strip()


def follow_pointer(root: object, reference: str) -> object:
    """What a reference within the schema names (RFC 6901); None for any other reference."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    target = root
    for step in reference.split("/")[1:]:
        if not is_object(target):
            return None
        target = target.get(step.replace("~1", "/").replace("~0", "~"))
    return target


def without_null(schema: Schema) -> tuple[Schema, bool]:
    """The schema of the values that are not null, and whether null is a value too."""
    kinds = schema.get("type")
    if is_array(kinds) and len(kinds) == 2 and "null" in kinds:  # noqa: PLR2004 - a type, or null
        return {**schema, "type": next((kind for kind in kinds if kind != "null"), None)}, True
    for keyword in ("anyOf", "oneOf"):
        variants = schema.get(keyword)
        if is_array(variants) and len(variants) == 2 and {"type": "null"} in variants:  # noqa: PLR2004 - the same
            variant = next((each for each in variants if each != {"type": "null"}), None)
            if is_object(variant):
                return {**variant, **{key: each for key, each in schema.items() if key != keyword}}, True
    return schema, False


def read_choices(schema: Schema) -> Sequence[Choice] | None:
    """The values of `enum` or `const`; None for a schema with neither, and empty if a form cannot offer them."""
    if "const" in schema:
        return make_choices([schema["const"]])
    values = schema.get("enum")
    if values is None:
        return None
    return make_choices(values) if is_array(values) and len(values) <= CHOICES_MAX else ()


def make_choices(values: Sequence[Any]) -> Sequence[Choice]:
    try:
        texts = dict.fromkeys(jsontext.dumps(each).decode() for each in values)
    except TypeError:  # a value that the service cannot store
        return ()
    choices = tuple(Choice(text=text, label=_choice_label(text)) for text in texts)
    return choices if all(len(each.text) <= CHOICE_LENGTH_MAX for each in choices) else ()


def _choice_label(text: str) -> str:
    value = jsontext.loads(text)
    return value if isinstance(value, str) and value.strip() and value.isprintable() else bound_text(text)


def scalar_kind(kind: object, schema: Schema) -> FieldKind:
    """The kind of field for a type of JSON Schema; JSON for a type that is no scalar, and for several types."""
    if kind == "string":
        return _text_kind(schema)
    return {"integer": FieldKind.INTEGER, "number": FieldKind.NUMBER}.get(str(kind), FieldKind.JSON)


def _text_kind(schema: Schema) -> FieldKind:
    longest = schema.get("maxLength")
    is_short = isinstance(longest, int) and longest <= SHORT_TEXT_LENGTH_MAX
    return FieldKind.TEXT if is_short or isinstance(schema.get("format"), str) else FieldKind.LONG_TEXT


def read_required(schema: Schema) -> frozenset[str]:
    required = schema.get("required")
    names = islice(required, REQUIRED_MAX) if is_array(required) else ()
    return frozenset(name for name in names if isinstance(name, str))


_LIMITS: Final = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
}


def describe_limits(schema: Schema) -> str:
    """The limits of the value, for a person: `at least 1, at most 100`."""
    limits = [words.format(schema[key]) for key, words in _LIMITS.items() if _is_limit(schema.get(key))]
    texts = [f"{key} {bound_text(schema[key], 80)}" for key in ("format", "pattern") if _is_text(schema.get(key))]
    return ", ".join(limits + texts)


def _is_limit(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(cast("float", value)) < 1e18  # noqa: PLR2004 - a readable one


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value)
