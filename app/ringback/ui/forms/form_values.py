"""Reads the arguments of a tool from what a viewer typed into the form of its schema, and writes arguments into such a form.

An empty field is left out of the arguments. A required one that is empty is null if the schema allows null, and an error
otherwise. An optional group with nothing in it is left out as a whole. Values that a field cannot show (the empty text, an
empty list) are written as JSON.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ringback.domain import json_size, jsontext
from ringback.ui.forms.form_fields import FieldKind, SchemaField, iterate_fields
from ringback.ui.forms.schema_reading import is_array, is_object

TypedValues = Mapping[str, Sequence[str]]
"""What a form sent, by the names of its fields."""

_INTEGER: Final = re.compile(rf"[+-]?[0-9]{{1,{jsontext.INTEGER_DIGITS_MAX}}}")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?")
_LEFT_OUT: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadArguments:
    arguments: dict[str, Any] = field(repr=False)
    errors: Mapping[str, str]
    """By the name of a field: what is wrong with it. With any error, `arguments` is not complete."""


class _Invalid(Exception):
    """What was typed is no value of the field."""


def read_arguments(root: SchemaField, typed: TypedValues) -> ReadArguments:
    """The arguments in the form `root`, with an error for each field that has no value of its type."""
    reader = _FormReader(typed)
    if root.kind is FieldKind.JSON and reader.is_blank(root):
        return ReadArguments(arguments={}, errors={})
    if (excessive := _find_excessive_lines(root, typed)) is not None:
        return ReadArguments(
            arguments={}, errors={excessive.name: f"These are more than {json_size.VALUES_MAX} lines."}
        )
    arguments = reader.read(root)
    if is_object(arguments):
        return ReadArguments(arguments=arguments, errors=reader.errors)
    reader.errors.setdefault(root.name, 'Write a JSON object, for example {"name": "value"}.')
    return ReadArguments(arguments={}, errors=reader.errors)


def _find_excessive_lines(root: SchemaField, typed: TypedValues) -> SchemaField | None:
    """The list that, with those before it, has more lines than a body of the API may have values. None if all are shorter."""
    lines = 0
    for each in iterate_fields(root):
        if each.kind is FieldKind.LINES:
            lines += sum(text.count("\n") for text in typed.get(each.name, ()))
            if lines > json_size.VALUES_MAX:
                return each
    return None


def write_defaults(root: SchemaField) -> dict[str, list[str]]:
    """What a new form shows: the defaults of the schema."""
    typed: dict[str, list[str]] = {}
    if root.kind is FieldKind.GROUP:
        for each in root.fields:
            typed |= write_defaults(each)
    elif root.default is not None and root.is_prefilled:
        shown: dict[str, list[str]] = {}
        if write_value(root, root.default, shown):
            typed = shown
    return typed


class _FormReader:
    def __init__(self, typed: TypedValues) -> None:
        self._typed = typed
        self.errors: dict[str, str] = {}

    def read(self, each: SchemaField) -> object:
        if self.is_blank(each):
            return self._read_blank(each)
        try:
            return (
                self._read_group(each) if each.kind is FieldKind.GROUP else _READERS[each.kind](each, self._get(each))
            )
        except _Invalid as problem:
            self.errors[each.name] = str(problem)
            return _LEFT_OUT

    def _get(self, each: SchemaField) -> Sequence[str]:
        return self._typed.get(each.name, ())

    def is_blank(self, each: SchemaField) -> bool:
        match each.kind:
            case FieldKind.GROUP:
                return all(self.is_blank(below) for below in each.fields)
            case FieldKind.CONSTANT:
                return True
            case FieldKind.TEXT | FieldKind.LONG_TEXT:
                return not any(self._get(each))
            case _:
                return not any(text.strip() for text in self._get(each))

    def _read_blank(self, each: SchemaField) -> object:
        if each.kind is FieldKind.CONSTANT:
            return jsontext.loads(each.choices[0].text)
        if not each.is_required:
            return _LEFT_OUT
        if each.is_nullable:
            return None
        if each.kind is FieldKind.GROUP:
            return self._read_group(each)
        self.errors[each.name] = _REQUIRED_ERRORS.get(each.kind, f"{each.key} is required.")
        return _LEFT_OUT

    def _read_group(self, each: SchemaField) -> dict[str, object]:
        values = {below.key: self.read(below) for below in each.fields}
        return {key: value for key, value in values.items() if value is not _LEFT_OUT}


_REQUIRED_ERRORS: Final = {
    FieldKind.TEXT: "This field is required. For an empty text, write the arguments as JSON.",
    FieldKind.LONG_TEXT: "This field is required. For an empty text, write the arguments as JSON.",
    FieldKind.CHOICE: "Choose a value.",
    FieldKind.CHOICES: "Choose one value at least. For an empty list, write the arguments as JSON.",
    FieldKind.LINES: "Write one line at least. For an empty list, write the arguments as JSON.",
    FieldKind.JSON: "This field is required: write JSON.",
}


def _normalize_breaks(text: str) -> str:
    """Browsers send line breaks as CR LF."""
    return text.replace("\r\n", "\n")


def _parse_integer(text: str) -> int:
    if _INTEGER.fullmatch(text.strip()) is None:
        raise _Invalid(f"{_quote(text)} is no whole number.")
    return int(text)


def _parse_number(text: str) -> float:
    """An int for a number without a fraction and an exponent, so that it stays exact."""
    stripped = text.strip()
    if _INTEGER.fullmatch(stripped) is not None:
        return _parse_integer(stripped)
    if _NUMBER.fullmatch(stripped) is None:
        raise _Invalid(f"{_quote(text)} is no number.")
    value = float(stripped)
    if math.isinf(value):
        raise _Invalid(f"{_quote(text)} is too large.")
    return value


def _read_choice(each: SchemaField, typed: Sequence[str]) -> object:
    return _parse_choice(each, typed[0])


def _read_choices(each: SchemaField, typed: Sequence[str]) -> list[object]:
    return [_parse_choice(each, text) for text in typed if text]


def _parse_choice(each: SchemaField, text: str) -> object:
    if text not in {choice.text for choice in each.choices}:
        raise _Invalid("This value is none of the choices. Choose again: the tool may have changed.")
    return jsontext.loads(text)


def _read_lines(each: SchemaField, typed: Sequence[str]) -> list[object]:
    lines = [line for line in _normalize_breaks(typed[0]).split("\n") if line]
    values: list[object] = []
    for number, line in enumerate(lines, start=1):
        try:
            values.append(_SCALAR_PARSERS[each.item_kind](line))
        except _Invalid as problem:
            raise _Invalid(f"Line {number}: {problem}") from None
    return values


def _read_json(_: SchemaField, typed: Sequence[str]) -> object:
    if json_size.is_excessive(typed[0].encode()):  # as for a body of the API
        raise _Invalid(
            f"This has more than {json_size.VALUES_MAX} JSON values, or more than {json_size.MEMBERS_MAX} members of objects."
        )
    try:
        jsontext.loads(typed[0])
        value = jsontext.loads_unique(typed[0].encode())
        jsontext.dumps(value)  # it refuses what the service cannot store: hundreds of levels
    except json.JSONDecodeError as problem:
        raise _Invalid(jsontext.describe_refusal(problem, subject="This")) from None
    except jsontext.RepeatedName as problem:
        raise _Invalid(f"This {problem.fault}") from None
    except (ValueError, TypeError, RecursionError):
        raise _Invalid(
            f"This has an integer of more than {jsontext.INTEGER_DIGITS_MAX} digits, or more than 250 levels."
        ) from None
    return value


def _read_scalar(each: SchemaField, typed: Sequence[str]) -> object:
    return _SCALAR_PARSERS[each.kind](typed[0])


_SCALAR_PARSERS: Final[Mapping[FieldKind, Callable[[str], object]]] = {
    FieldKind.TEXT: _normalize_breaks,
    FieldKind.LONG_TEXT: _normalize_breaks,
    FieldKind.INTEGER: _parse_integer,
    FieldKind.NUMBER: _parse_number,
}
_READERS: Final = {
    **dict.fromkeys(_SCALAR_PARSERS, _read_scalar),
    FieldKind.CHOICE: _read_choice,
    FieldKind.CHOICES: _read_choices,
    FieldKind.LINES: _read_lines,
    FieldKind.JSON: _read_json,
}


def _quote(text: str) -> str:
    shown = text.strip()
    return f"“{shown[:40]}…”" if len(shown) > 40 else f"“{shown}”"  # noqa: PLR2004 - what fits into one line


# -- writing ----------------------------------------------------------------------------------------------------------------


def write_value(each: SchemaField, value: object, typed: dict[str, list[str]]) -> bool:
    """Add to `typed` what a viewer types for the value. False if the field, or one below it, cannot show it."""
    if value is None and each.is_nullable and each.is_required:
        return True
    match each.kind:
        case FieldKind.GROUP:
            return _write_group(each, value, typed)
        case FieldKind.CONSTANT:
            return _json_text(value) == each.choices[0].text
        case FieldKind.LINES | FieldKind.CHOICES:
            return is_array(value) and _write_list(each, value, typed)
        case _:
            text = _show_scalar(each, each.kind, value)
            typed |= {} if text is None else {each.name: [text]}
            return text is not None


def _write_group(each: SchemaField, value: object, typed: dict[str, list[str]]) -> bool:
    if not is_object(value) or not value.keys() <= {below.key for below in each.fields}:
        return False
    if any(below.is_required and below.key not in value for below in each.fields):
        return False
    below_typed: dict[str, list[str]] = {}
    if not all(write_value(below, value[below.key], below_typed) for below in each.fields if below.key in value):
        return False
    typed |= below_typed
    return bool(below_typed) or (each.is_required and not each.is_nullable)


def _write_list(each: SchemaField, values: Sequence[object], typed: dict[str, list[str]]) -> bool:
    if each.kind is FieldKind.CHOICES:
        texts: list[str | None] = [_json_text(value) for value in values]
        wanted = [choice.text for choice in each.choices if choice.text in texts]
        typed[each.name] = wanted
        return bool(values) and texts == wanted
    shown = [_show_scalar(each, each.item_kind, value) for value in values]
    lines = [text for text in shown if text is not None]
    typed[each.name] = ["\n".join(lines)]
    return any(line.strip() for line in lines) and len(lines) == len(shown)


def _show_scalar(each: SchemaField, kind: FieldKind, value: object) -> str | None:
    """The text of the field; None if the field cannot show the value."""
    text = _json_text(value)
    if text is None:
        return None
    match kind:
        case FieldKind.TEXT | FieldKind.LONG_TEXT:
            forbidden = "\r" if kind is FieldKind.LONG_TEXT else "\r\n"
            return value if isinstance(value, str) and value and not set(value) & set(forbidden) else None
        case FieldKind.INTEGER:
            return text if isinstance(value, int) and not isinstance(value, bool) else None
        case FieldKind.NUMBER:
            return text if not isinstance(value, bool) and _NUMBER.fullmatch(text) else None
        case FieldKind.CHOICE:
            return text if text in {choice.text for choice in each.choices} else None
        case _:
            return text


def _json_text(value: object) -> str | None:
    """None for what JSON, or the service, cannot store."""
    try:
        return jsontext.dumps(value).decode()
    except TypeError:
        return None
