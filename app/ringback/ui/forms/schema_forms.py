"""Makes the fields of a form from a tool's inputSchema.

    string, number, integer, boolean, enum, const      one field each
    array of strings or numbers                        a textarea, one item a line; of an enum: checkboxes
    object with properties                             a group of fields, at most `LEVELS_MAX` deep
    everything else (anyOf, foreign $ref, recursion)   a textarea for JSON

An upstream wrote the schema, so its depth, its number of fields and its texts are bounded: a schema beyond the bounds becomes
one textarea for all arguments. `form_values` reads what a viewer typed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count, islice
from typing import Any, Final, TypeGuard, cast

from ringback.domain import jsontext

ROOT_NAME: Final = "arguments"
"""The name of the textarea for all arguments, and the beginning of the names of all fields."""
LEVELS_MAX: Final = 3
"""Levels of groups within the arguments. A deeper object is written as JSON."""
INPUTS_MAX: Final = 100
"""Inputs of one form: half of what the service reads (`page_routes.FORM_FIELDS_MAX`)."""
CHOICES_MAX: Final = 200
CHECKBOXES_MAX: Final = 20
REQUIRED_MAX: Final = 1_000
KEY_LENGTH_MAX: Final = 100
"""Characters of a property's name that a form shows."""
CHOICE_LENGTH_MAX: Final = 200
TEXT_LENGTH_MAX: Final = 1_000
"""Characters of a title or a description that a form shows."""
SHORT_TEXT_LENGTH_MAX: Final = 100
"""A string of at most so many characters gets one line; a longer one a textarea."""
REFERENCES_MAX: Final = 8
"""References that lead from one to the next."""
_COMBINING_KEYWORDS: Final = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "$dynamicRef"})

Schema = Mapping[str, Any]


class FieldKind(StrEnum):
    TEXT = "text"
    LONG_TEXT = "long_text"
    INTEGER = "integer"
    NUMBER = "number"
    CHOICE = "choice"
    """One of `choices`."""
    CONSTANT = "constant"
    """The only value; there is nothing to type."""
    CHOICES = "choices"
    """Any of `choices`, as checkboxes."""
    LINES = "lines"
    """A list, one item a line."""
    GROUP = "group"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    text: str
    """The value as JSON: what the form sends."""
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaField:
    """One field of the form, or a group of fields."""

    name: str
    """What the form sends: the place among the arguments, `arguments/options/depth`."""
    key: str
    """The name of the property."""
    number: int
    """Unique within the form, for the ids of elements."""
    kind: FieldKind
    is_required: bool = False
    is_nullable: bool = False
    title: str = ""
    description: str = ""
    hint: str = ""
    """The limits of the value, in words."""
    choices: Sequence[Choice] = ()
    item_kind: FieldKind = FieldKind.TEXT
    """Of `LINES`: TEXT, INTEGER or NUMBER."""
    fields: Sequence["SchemaField"] = ()
    """Of a group."""
    default: Any = field(default=None, repr=False)
    """None without one."""
    is_prefilled: bool = False
    """Whether a new form shows the default. Within an optional group it would make the whole group an argument."""

    @property
    def element_id(self) -> str:
        return f"field-{self.number}"


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


def iterate_fields(root: SchemaField) -> Iterator[SchemaField]:
    """The field and all fields below it."""
    yield root
    for each in root.fields:
        yield from iterate_fields(each)


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
        found, is_nullable = _without_null(found)
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
        choices = _read_choices(schema)
        if choices is not None:
            return self._add_choice(choices, place, values)
        match schema.get("type", "object" if "properties" in schema else None):
            case "boolean":
                return self._add_choice(_make_choices([True, False]), place, values)
            case "array":
                return self._add_list(schema, references, values)
            case "object" if place.level <= LEVELS_MAX and _has_only_properties(schema, place):
                return self._add_group(schema, place, references, values)
            case kind:
                return self._add(values, kind=_scalar_kind(kind, schema))

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
            "hint": _describe_limits(schema),
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
        choices = _read_choices(items)
        if choices is not None and 0 < len(choices) <= CHECKBOXES_MAX:
            return self._add(values, kind=FieldKind.CHOICES, choices=choices, inputs=len(choices))
        item_kind = _ITEM_KINDS.get(str(items.get("type"))) if choices is None else None
        if item_kind is None:
            return self._add(values, kind=FieldKind.JSON)
        return self._add(values, kind=FieldKind.LINES, item_kind=item_kind)

    def _add_group(
        self, schema: Schema, place: _Place, references: frozenset[str], values: Mapping[str, Any]
    ) -> SchemaField:
        required = _read_required(schema)
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
            target = _follow_pointer(self._root, reference)
            if not is_object(target):
                return None
            references |= {reference}
            schema = {**target, **{key: each for key, each in schema.items() if key != "$ref"}}
        return None


_ITEM_KINDS: Final = {"string": FieldKind.TEXT, "integer": FieldKind.INTEGER, "number": FieldKind.NUMBER}


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


def _follow_pointer(root: object, reference: str) -> object:
    """What a reference within the schema names (RFC 6901); None for any other reference."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    target = root
    for step in reference.split("/")[1:]:
        if not is_object(target):
            return None
        target = target.get(step.replace("~1", "/").replace("~0", "~"))
    return target


def _without_null(schema: Schema) -> tuple[Schema, bool]:
    """The schema of the values that are not null, and whether null is a value too."""
    kinds = schema.get("type")
    if is_array(kinds) and len(kinds) == 2 and "null" in kinds:  # noqa: PLR2004 - a type, or null
        return {**schema, "type": next((kind for kind in kinds if kind != "null"), None)}, True
    for keyword in ("anyOf", "oneOf"):
        variants = schema.get(keyword)
        if is_array(variants) and len(variants) == 2 and {"type": "null"} in variants:  # noqa: PLR2004
            variant = next((each for each in variants if each != {"type": "null"}), None)
            if is_object(variant):
                return {**variant, **{key: each for key, each in schema.items() if key != keyword}}, True
    return schema, False


def _read_choices(schema: Schema) -> Sequence[Choice] | None:
    """The values of `enum` or `const`; None for a schema with neither, and empty if a form cannot offer them."""
    if "const" in schema:
        return _make_choices([schema["const"]])
    values = schema.get("enum")
    if values is None:
        return None
    return _make_choices(values) if is_array(values) and len(values) <= CHOICES_MAX else ()


def _make_choices(values: Sequence[Any]) -> Sequence[Choice]:
    try:
        texts = dict.fromkeys(jsontext.dumps(each).decode() for each in values)
    except TypeError:  # a value that the service cannot store
        return ()
    choices = tuple(Choice(text=text, label=_choice_label(text)) for text in texts)
    return choices if all(len(each.text) <= CHOICE_LENGTH_MAX for each in choices) else ()


def _choice_label(text: str) -> str:
    value = jsontext.loads(text)
    return value if isinstance(value, str) and value.strip() and value.isprintable() else bound_text(text)


def _scalar_kind(kind: object, schema: Schema) -> FieldKind:
    """The kind of field for a type of JSON Schema; JSON for a type that is no scalar, and for several types."""
    if kind == "string":
        return _text_kind(schema)
    return {"integer": FieldKind.INTEGER, "number": FieldKind.NUMBER}.get(str(kind), FieldKind.JSON)


def _text_kind(schema: Schema) -> FieldKind:
    longest = schema.get("maxLength")
    is_short = isinstance(longest, int) and longest <= SHORT_TEXT_LENGTH_MAX
    return FieldKind.TEXT if is_short or isinstance(schema.get("format"), str) else FieldKind.LONG_TEXT


def _read_required(schema: Schema) -> frozenset[str]:
    required = schema.get("required")
    names = islice(required, REQUIRED_MAX) if is_array(required) else ()
    return frozenset(name for name in names if isinstance(name, str))


def _has_only_properties(schema: Schema, place: _Place) -> bool:
    """Whether fields for the properties are enough. Without any, only the arguments themselves are a (then empty) group."""
    properties = schema.get("properties")
    if properties is None:
        return place.level == 0
    return is_object(properties) and (bool(properties) or place.level == 0)


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


def _describe_limits(schema: Schema) -> str:
    """The limits of the value, for a person: `at least 1, at most 100`."""
    limits = [words.format(schema[key]) for key, words in _LIMITS.items() if _is_limit(schema.get(key))]
    texts = [f"{key} {bound_text(schema[key], 80)}" for key in ("format", "pattern") if _is_text(schema.get(key))]
    return ", ".join(limits + texts)


def _is_limit(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(cast("float", value)) < 1e18  # noqa: PLR2004


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value)
