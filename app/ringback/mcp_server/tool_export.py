"""Exports a tool unchanged, except that its outputSchema also allows the pending result.

A validating client would reject other `structuredContent`, so the root becomes

    {"type": "object", "anyOf": [the tool's own schema, PENDING_SCHEMA]}

The root also repeats keywords that clients read without validating: `properties`, title, description and `x-…` keywords
(FastMCP's client builds typed values from them). Definitions move to the root, where references look for them; other references
within the tool's schema are rewritten. No reference is ever fetched.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

_NESTED_POINTER: Final = "#/anyOf/0"
_DEFINITION_KEYWORDS: Final = frozenset({"$defs", "definitions"})
_ROOT_KEYWORDS: Final = _DEFINITION_KEYWORDS | {"properties"}
_TITLE_KEYWORDS: Final = frozenset({"title", "description"})
_IDENTIFIER_KEYWORDS: Final = frozenset({"$id", "$anchor", "$dynamicAnchor"})
_LITERAL_KEYWORDS: Final = frozenset({"const", "enum", "default", "examples"})
"""The values of these keywords are data, in which `$ref` has no meaning."""

PENDING_KEY: Final = "ringback_pending"
PENDING_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "The tool has not finished; get its result with these.",
    "properties": {
        PENDING_KEY: {
            "type": "object",
            "properties": {
                "call_id": {"type": "string"},
                # A completed call's, if its client has not read other large responses (`tool_call_responder`).
                "status": {"type": "string", "enum": ["working", "input_required", "completed"]},
                "resource_uri": {"type": "string"},
                "next_step": {"type": "string", "description": "What to do now."},
            },
            "required": ["call_id", "status", "resource_uri", "next_step"],
        }
    },
    "required": [PENDING_KEY],
    "additionalProperties": False,
}


def export_tool(tool: Mapping[str, Any], *, is_modern: bool) -> dict[str, Any]:
    """The Tool object that clients get.

    Legacy outputSchemas describe objects only, and a legacy client rejects the whole list if one does not.
    """
    schema = tool.get("outputSchema")
    if not isinstance(schema, dict):
        return dict(tool)
    tool_schema = cast("dict[str, Any]", schema)
    if not is_modern and tool_schema.get("type") != "object":
        return {key: value for key, value in tool.items() if key != "outputSchema"}
    dialect = {"$schema": tool_schema["$schema"]} if "$schema" in tool_schema else {}
    inner = {key: value for key, value in tool_schema.items() if key != "$schema"}
    return {**tool, "outputSchema": {**dialect, **_allow_pending(inner)}}


def _allow_pending(tool_schema: Mapping[str, Any]) -> dict[str, Any]:
    root = {"type": "object"} if tool_schema.get("type") == "object" else {}
    if _has_identifiers(tool_schema):  # an identifier must be unique, so nothing is repeated
        return {
            **root,
            "anyOf": [
                tool_schema if "$id" in tool_schema else _rewrite_references(tool_schema, frozenset()),
                PENDING_SCHEMA,
            ],
        }
    rewritten = cast("dict[str, Any]", _rewrite_references(tool_schema, _ROOT_KEYWORDS))
    root_keywords = {
        key: value
        for key, value in rewritten.items()
        if key in _ROOT_KEYWORDS | _TITLE_KEYWORDS or key.startswith("x-")
    }
    nested = {key: value for key, value in rewritten.items() if key not in _DEFINITION_KEYWORDS}
    return {**root_keywords, **root, "anyOf": [nested, PENDING_SCHEMA]}


def _has_identifiers(schema: Any) -> bool:
    """Whether the schema or a part of it has an identifier."""
    if isinstance(schema, list):
        return any(_has_identifiers(each) for each in cast("list[Any]", schema))
    if not isinstance(schema, dict):
        return False
    members = cast("dict[str, Any]", schema)
    return not _IDENTIFIER_KEYWORDS.isdisjoint(members) or any(_has_identifiers(value) for value in members.values())


def _rewrite_references(schema: Any, root_keywords: frozenset[str]) -> Any:
    """The schema with its references from the root rewritten to its new place, except those into `root_keywords`."""
    if isinstance(schema, list):
        return [_rewrite_references(each, root_keywords) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    members = cast("dict[str, Any]", schema)
    return {
        key: value if key in _LITERAL_KEYWORDS else _rewrite_member(key, value, root_keywords)
        for key, value in members.items()
    }


def _rewrite_member(key: str, value: Any, root_keywords: frozenset[str]) -> Any:
    if key == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/")):
        return value if value[2:].partition("/")[0] in root_keywords else _NESTED_POINTER + value[1:]
    return _rewrite_references(value, root_keywords)
