"""Makes the fields of a form from a tool's inputSchema.

    string, number, integer, boolean, enum, const      one field each
    array of strings or numbers                        a textarea, one item a line; of an enum: checkboxes
    object with properties                             a group of fields, at most `LEVELS_MAX` deep
    everything else (anyOf, foreign $ref, recursion)   a textarea for JSON

An upstream wrote the schema, so its depth, its number of fields and its texts are bounded: a schema beyond the bounds becomes
one textarea for all arguments. `form_values` reads what a viewer typed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

from ringback.ui.forms.form_fields import ROOT_NAME, Choice, FieldKind, SchemaField
from ringback.ui.forms.schema_reading import (
    Schema,
    bound_text,
    describe_limits,
    follow_pointer,
    is_object,
    make_choices,
    read_choices,
    read_required,
    scalar_kind,
    without_null,
)

LEVELS_MAX: Final = 3
"""Levels of groups within the arguments. A deeper object is written as JSON."""
INPUTS_MAX: Final = 100
"""Inputs of one form: half of what the service reads (`page_routes.FORM_FIELDS_MAX`)."""
CHECKBOXES_MAX: Final = 20
KEY_LENGTH_MAX: Final = 100
"""Characters of a property's name that a form shows."""
REFERENCES_MAX: Final = 8
"""References that lead from one to the next."""
_COMBINING_KEYWORDS: Final = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "$dynamicRef"})


def build_form(schema: object) -> SchemaField:
    """The fields of the arguments: a group, or one JSON field if the schema allows no form."""
    try:
        builder = _FormBuilder(schema)
        root = builder.build(schema, key=ROOT_NAME, place=_Place(name=ROOT_NAME, is_required=True, is_prefilled=True))
    except _TooLarge:
        return build_json_form()
    return replace(root, is_nullable=False) if root.kind is FieldKind.GROUP else build_json_form()


def build_json_form() -> SchemaField:
    """One textarea for all arguments. It can hold every value."""
    return SchemaField(name=ROOT_NAME, key=ROOT_NAME, number=0, kind=FieldKind.JSON, is_required=True)


class _TooLarge(Exception):
    """The schema exceeds the bounds of a form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    name: str
    is_required: bool
    is_prefilled: bool
    level: int = 0
    references: frozenset[str] = frozenset()
    """The references that led here. One of them again is a recursion."""

    def enter(self, key: str, *, is_required: bool, references: frozenset[str]) -> "_Place":
        step = key.replace("~", "~0").replace("/", "~1")
        return _Place(
            name=f"{self.name}/{step}",
            is_required=is_required,
            is_prefilled=self.is_prefilled and self.is_required,
            level=self.level + 1,
            references=references,
        )


class _FormBuilder:
    def __init__(self, root: object) -> None:
        self._root = root
        self._numbers = count()
        self._inputs = 0

    def build(self, schema: object, *, key: str, place: _Place) -> SchemaField:
        resolved = self._resolve(schema, place.references)
        if resolved is None:
            return self._build_json({}, key=key, place=place)
        found, references = resolved
        found, is_nullable = without_null(found)
        if is_nullable and "$ref" in found:  # Optional[Model] in pydantic
            resolved = self._resolve(found, references)
            if resolved is None:
                return self._build_json(found, key=key, place=place)
            found, references = resolved
        values = self._describe(found, key=key, place=place) | {"is_nullable": is_nullable}
        return self._build_kind(found, place, references, values)

    def _build_kind(
        self, schema: Schema, place: _Place, references: frozenset[str], values: dict[str, Any]
    ) -> SchemaField:
        if not _COMBINING_KEYWORDS.isdisjoint(schema) or "$ref" in schema:
            return self._add(values, kind=FieldKind.JSON)
        choices = read_choices(schema)
        if choices is not None:
            return self._add_choice(choices, place, values)
        match schema.get("type", "object" if "properties" in schema else None):
            case "boolean":
                return self._add_choice(make_choices([True, False]), place, values)
            case "array":
                return self._add_list(schema, references, values)
            case "object" if place.level <= LEVELS_MAX and _has_only_properties(schema, place):
                return self._add_group(schema, place, references, values)
            case kind:
                return self._add(values, kind=scalar_kind(kind, schema))

    def _build_json(self, schema: Schema, *, key: str, place: _Place) -> SchemaField:
        return self._add(self._describe(schema, key=key, place=place), kind=FieldKind.JSON)

    def _describe(self, schema: Schema, *, key: str, place: _Place) -> dict[str, Any]:
        return {
            "name": place.name,
            "key": key,
            "number": next(self._numbers),
            "is_required": place.is_required,
            "title": bound_text(schema.get("title")),
            "description": bound_text(schema.get("description")),
            "hint": describe_limits(schema),
            "default": schema.get("default"),
            "is_prefilled": place.is_prefilled,
        }

    def _add(self, values: Mapping[str, Any], *, inputs: int = 1, **more: Any) -> SchemaField:
        self._inputs += inputs
        if self._inputs > INPUTS_MAX:
            raise _TooLarge
        return SchemaField(**values, **more)

    def _add_choice(self, choices: Sequence[Choice], place: _Place, values: Mapping[str, Any]) -> SchemaField:
        if not choices:
            return self._add(values, kind=FieldKind.JSON)
        is_constant = place.is_required and len(choices) == 1 and not values["is_nullable"]
        return self._add(values, kind=FieldKind.CONSTANT if is_constant else FieldKind.CHOICE, choices=choices)

    def _add_list(self, schema: Schema, references: frozenset[str], values: Mapping[str, Any]) -> SchemaField:
        resolved = self._resolve(schema.get("items"), references)
        if resolved is None or "prefixItems" in schema or not _COMBINING_KEYWORDS.isdisjoint(resolved[0]):
            return self._add(values, kind=FieldKind.JSON)
        items = resolved[0]
        choices = read_choices(items)
        if choices is not None and 0 < len(choices) <= CHECKBOXES_MAX:
            return self._add(values, kind=FieldKind.CHOICES, choices=choices, inputs=len(choices))
        item_kind = _ITEM_KINDS.get(str(items.get("type"))) if choices is None else None
        if item_kind is None:
            return self._add(values, kind=FieldKind.JSON)
        return self._add(values, kind=FieldKind.LINES, item_kind=item_kind)

    def _add_group(
        self, schema: Schema, place: _Place, references: frozenset[str], values: Mapping[str, Any]
    ) -> SchemaField:
        required = read_required(schema)
        fields: list[SchemaField] = []
        for key, each in schema.get("properties", {}).items():
            if each is False:  # the property is forbidden
                continue
            if len(key) > KEY_LENGTH_MAX or not key.isprintable():
                raise _TooLarge
            below = place.enter(key, is_required=key in required, references=references)
            fields.append(self.build(each, key=key, place=below))
        return self._add(values, kind=FieldKind.GROUP, fields=tuple(fields))

    def _resolve(self, schema: object, references: frozenset[str]) -> tuple[Schema, frozenset[str]] | None:
        """The schema without its local reference, whose target and siblings count. None if it cannot be resolved."""
        for _ in range(REFERENCES_MAX):
            if not is_object(schema):
                return ({}, references) if schema is True else None
            reference = schema.get("$ref")
            if reference is None:
                return schema, references
            if not isinstance(reference, str) or reference in references:
                return None
            target = follow_pointer(self._root, reference)
            if not is_object(target):
                return None
            references |= {reference}
            schema = {**target, **{key: each for key, each in schema.items() if key != "$ref"}}
        return None


_ITEM_KINDS: Final = {"string": FieldKind.TEXT, "integer": FieldKind.INTEGER, "number": FieldKind.NUMBER}


def _has_only_properties(schema: Schema, place: _Place) -> bool:
    """Whether fields for the properties are enough. Without any, only the arguments themselves are a (then empty) group."""
    properties = schema.get("properties")
    if properties is None:
        return place.level == 0
    return is_object(properties) and (bool(properties) or place.level == 0)
