"""A tool as it is exported: unchanged, but that its outputSchema also allows the pending result.

A client that validates `structuredContent` would refuse anything else, so the root becomes

    {"type": "object", "anyOf": [the tool's own, PENDING_SCHEMA]}

Beside these the root repeats what clients read rather than validate by: `properties`, title, description and `x-…` keywords
(FastMCP's client makes typed values of them). Definitions move up to the root, where references look for them; other
references within the tool's own schema are moved along with it. Nothing is ever fetched for one.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

_MOVED_TO: Final = "#/anyOf/0"
_DEFINITIONS: Final = frozenset({"$defs", "definitions"})
_SHARED: Final = _DEFINITIONS | {"properties"}
_READ: Final = frozenset({"title", "description"})
_NAMES: Final = frozenset({"$id", "$anchor", "$dynamicAnchor"})
_DATA: Final = frozenset({"const", "enum", "default", "examples"})
"""Their values are data, in which `$ref` means nothing."""

PENDING: Final = "ringback_pending"
PENDING_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "The tool is still running; its result is found with these.",
    "properties": {
        PENDING: {
            "type": "object",
            "properties": {
                "call_id": {"type": "string"},
                "status": {"type": "string", "enum": ["working", "input_required"]},
                "resource_uri": {"type": "string"},
            },
            "required": ["call_id", "status", "resource_uri"],
        }
    },
    "required": [PENDING],
    "additionalProperties": False,
}


def exported(tool: Mapping[str, Any], *, modern: bool) -> dict[str, Any]:
    """The Tool object as clients are to see it.

    Before 2026-07-28 an outputSchema describes objects only, and clients refuse a whole list for one that does not.
    """
    schema = tool.get("outputSchema")
    if not isinstance(schema, dict):
        return dict(tool)
    own = cast("dict[str, Any]", schema)
    if not modern and own.get("type") != "object":
        return {key: value for key, value in tool.items() if key != "outputSchema"}
    dialect = {"$schema": own["$schema"]} if "$schema" in own else {}
    inner = {key: value for key, value in own.items() if key != "$schema"}
    return {**tool, "outputSchema": {**dialect, **_either(inner)}}


def _either(own: Mapping[str, Any]) -> dict[str, Any]:
    root = {"type": "object"} if own.get("type") == "object" else {}
    if _names_parts(own):  # a name may stand once only, so nothing is repeated
        return {**root, "anyOf": [own if "$id" in own else _moved(own, frozenset()), PENDING_SCHEMA]}
    moved = cast("dict[str, Any]", _moved(own, _SHARED))
    read = {key: value for key, value in moved.items() if key in _SHARED | _READ or key.startswith("x-")}
    kept = {key: value for key, value in moved.items() if key not in _DEFINITIONS}
    return {**read, **root, "anyOf": [kept, PENDING_SCHEMA]}


def _names_parts(schema: Any) -> bool:
    """Whether the schema gives itself or a part of itself a name to refer to."""
    if isinstance(schema, list):
        return any(_names_parts(each) for each in cast("list[Any]", schema))
    if not isinstance(schema, dict):
        return False
    members = cast("dict[str, Any]", schema)
    return not _NAMES.isdisjoint(members) or any(_names_parts(value) for value in members.values())


def _moved(schema: Any, stays: frozenset[str]) -> Any:
    """The schema with references from the root pointing to where it stands now, but for those into what stays there."""
    if isinstance(schema, list):
        return [_moved(each, stays) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    members = cast("dict[str, Any]", schema)
    return {key: value if key in _DATA else _reference(key, value, stays) for key, value in members.items()}


def _reference(key: str, value: Any, stays: frozenset[str]) -> Any:
    if key == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/")):
        return value if value[2:].partition("/")[0] in stays else _MOVED_TO + value[1:]
    return _moved(value, stays)
