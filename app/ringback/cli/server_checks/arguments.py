"""Arguments for an event type, made from its `inputSchema`: valid ones, and ones of a wrong type."""

from collections.abc import Mapping
from typing import Any, Final, cast

Json = dict[str, Any]

DEPTH_MAX: Final = 8
"""Schemas of arguments are two or three levels deep; a deeper one may refer to itself."""
_WRONG_VALUES: Final[Mapping[str, Any]] = {
    "string": 12345,
    "number": "not a number",
    "integer": "not a number",
    "boolean": "not a boolean",
    "array": "not an array",
    "object": "not an object",
}
_STRING: Final = "check"


def make_arguments(schema: Json) -> Json | None:
    """The required arguments and no others; None if they cannot be made from the schema."""
    value = _make_object(schema, DEPTH_MAX)
    return value if isinstance(value, dict) else None


def make_mistyped_arguments(schema: Json, arguments: Json) -> Json | None:
    """The arguments with one of a type that the schema does not allow; None if the schema forbids no type."""
    for name, part in _properties(schema).items():
        if (kind := part.get("type")) in _WRONG_VALUES:
            return {**arguments, name: _WRONG_VALUES[cast("str", kind)]}
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


def _make_object(schema: Json, depth: int) -> Json | None:
    required, properties = schema.get("required", []), _properties(schema)
    if not isinstance(required, list):
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
    if "pattern" in schema or "format" in schema or schema.get("minItems"):
        return None
    match schema.get("type"):
        case "string":
            return _STRING.ljust(schema.get("minLength", 0), "k")
        case "object":
            return _make_object(schema, depth - 1)
        case kind:
            simple: Json = {
                "integer": schema.get("minimum", 1),
                "number": schema.get("minimum", 1),
                "boolean": False,
                "array": [],
            }
            return simple.get(cast("str", kind))
