"""Arguments for an event type, made from its `inputSchema`: valid ones, and ones of a wrong type."""

import math
from collections.abc import Sequence
from typing import Any, Final, cast

Json = dict[str, Any]

DEPTH_MAX: Final = 8
"""Schemas of arguments are two or three levels deep; a deeper one may refer to itself."""
LENGTH_MAX: Final = 10_000
"""Characters of a made argument. A schema that demands more may demand any number."""
_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_WRONG_VALUES: Final[Sequence[tuple[frozenset[str], Any]]] = (
    (frozenset({"number", "integer"}), 12345),
    (frozenset({"string"}), "not of this type"),
    (frozenset({"array"}), []),
    (frozenset({"object"}), {}),
)
"""Values, each with the types that allow it."""
_STRING: Final = "check"
_FURTHER_RULES: Final = frozenset(
    {
        *("allOf", "anyOf", "oneOf", "not", "if", "$ref", "$dynamicRef", "dependentRequired", "dependentSchemas"),
        *("pattern", "format", "contains", "multipleOf", "minProperties"),
    }
)
"""Keywords that these functions do not follow: a value made in spite of one might be refused by a correct server."""


def make_arguments(schema: Json) -> Json | None:
    """The required arguments and no others; None if they cannot be made from the schema."""
    value = _make_object(schema, DEPTH_MAX)
    return value if isinstance(value, dict) else None


def make_mistyped_arguments(schema: Json, arguments: Json) -> Json | None:
    """The arguments with one of a type that the schema does not allow; None if the schema forbids no type."""
    for name, part in _properties(schema).items():
        kinds = frozenset(_list_types(part))
        for allowing, value in _WRONG_VALUES if kinds else ():
            if not allowing & kinds:
                return {**arguments, name: value}
    return {**arguments, "ringback_check_unknown": 1} if schema.get("additionalProperties") is False else None


def make_reordered_arguments(schema: Json, arguments: Json) -> tuple[Json, Json] | None:
    """The same two or more arguments in two orders; None if the schema has fewer that can be made."""
    made = {name: _make_value(part, DEPTH_MAX) for name, part in _properties(schema).items()}
    whole = {**arguments, **{name: value for name, value in made.items() if value is not None}}
    if len(whole) < 2:  # noqa: PLR2004 - an order needs two
        return None
    return whole, dict(reversed(whole.items()))


def _properties(schema: Json) -> dict[str, Json]:
    found = schema.get("properties")
    if not isinstance(found, dict):
        return {}
    return {name: part for name, part in cast("dict[str, Json]", found).items() if isinstance(cast("Any", part), dict)}


def _list_types(schema: Json) -> list[str]:
    """The types that the schema names; none if it names none, or something that is no type."""
    found = schema.get("type")
    kinds = cast("list[Any]", found) if isinstance(found, list) else [found]
    return cast("list[str]", kinds) if all(isinstance(kind, str) and kind in _TYPES for kind in kinds) else []


def _make_object(schema: Json, depth: int) -> Json | None:
    required, properties = schema.get("required", []), _properties(schema)
    if not isinstance(required, list) or _FURTHER_RULES & schema.keys():
        return None
    made = {name: _make_value(properties.get(name, {}), depth) for name in cast("list[str]", required)}
    return None if None in made.values() else made


def _make_value(schema: Json, depth: int) -> Any:
    """A value that the schema allows, as far as this looks; None if it cannot be made."""
    given = [schema[name] for name in ("const", "default") if name in schema]
    for several in ("enum", "examples"):
        values = schema.get(several)
        given += cast("list[Any]", values)[:1] if isinstance(values, list) else []
    if given or depth == 0:
        return given[0] if given else None
    if _FURTHER_RULES & schema.keys():
        return None
    made = (_make_value_of_type(kind, schema, depth) for kind in _list_types(schema))
    return next((value for value in made if value is not None), None)


def _make_value_of_type(kind: str, schema: Json, depth: int) -> Any:
    match kind:
        case "string":
            return _make_string(schema)
        case "integer" | "number":
            return _make_number(schema)
        case "boolean":
            return False
        case "array":
            return None if schema.get("minItems") else []
        case "object":
            return _make_object(schema, depth - 1)
        case _:
            return None


def _make_string(schema: Json) -> str | None:
    length = schema.get("minLength", 0)
    return _STRING.ljust(length, "k")[: schema.get("maxLength")] if length <= LENGTH_MAX else None


def _make_number(schema: Json) -> int | None:
    """1, or the whole number that is nearest to it within the bounds; None if there is none."""
    least = [math.ceil(schema[name]) for name in ("minimum",) if name in schema]
    least += [math.floor(schema[name]) + 1 for name in ("exclusiveMinimum",) if name in schema]
    most = [math.floor(schema[name]) for name in ("maximum",) if name in schema]
    most += [math.ceil(schema[name]) - 1 for name in ("exclusiveMaximum",) if name in schema]
    nearest = max([*least, min([*most, 1])])
    return nearest if nearest <= min(most, default=nearest) else None
