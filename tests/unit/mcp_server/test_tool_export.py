"""An exported outputSchema accepts the tool's own results and a pending result, and nothing else."""

from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry

from ringback.domain.call import CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.mcp_server.pending_results import build_pending_result
from ringback.mcp_server.tool_export import PENDING_KEY, export_tool
from tests.support.builders import make_call

NODE: Final[dict[str, Any]] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
SCHEMAS: Final[list[tuple[dict[str, Any], Any, Any]]] = [
    (NODE, {"name": "a"}, {"name": 1}),
    (
        {"$defs": {"node": NODE}, "type": "object", "properties": {"top": {"$ref": "#/$defs/node"}}},
        {"top": {"name": "a"}},
        {"top": {"name": 1}},
    ),
    (
        {"type": "object", "properties": {"child": {"$ref": "#"}, "size": {"type": "integer"}}},
        {"child": {"child": {"size": 1}}},
        {"child": {"child": {"size": "1"}}},
    ),
    (
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": "urn:example:tool",
            "$defs": {"node": NODE},
            "type": "object",
            "properties": {"top": {"$ref": "#/$defs/node"}},
        },
        {"top": {"name": "a"}},
        {"top": {"name": 1}},
    ),
    (
        {"type": "object", "properties": {"kind": {"const": {"$ref": "#/x"}}}},
        {"kind": {"$ref": "#/x"}},
        {"kind": {"$ref": "#/anyOf/0/x"}},
    ),
    ({"type": "object", "additionalProperties": False}, {}, {"other": 1}),
    (
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}},
        {"b": 1},
        {"b": "1"},
    ),
    (
        {"type": "object", "properties": {"a": {"$ref": "#/allOf/0"}}, "allOf": [{"type": ["object", "string"]}]},
        {"a": "text"},
        {"a": 1},
    ),
    (
        {"type": "object", "properties": {"a": {"$anchor": "it", "type": "integer"}, "b": {"$ref": "#it"}}},
        {"b": 1},
        {"b": "1"},
    ),
]
PENDING_RESULT: Final = {
    PENDING_KEY: {
        "call_id": "call_1",
        "status": "working",
        "resource_uri": "ringback://calls/call_1",
        "next_step": "Wait.",
    }
}


@pytest.mark.parametrize(("schema", "good", "bad"), SCHEMAS)
def test_an_exported_schema_accepts_the_same_results_and_a_pending_result(
    schema: dict[str, Any], good: Any, bad: Any
) -> None:
    shape = export_tool({"name": "tool", "outputSchema": schema}, is_modern=True)["outputSchema"]
    Draft202012Validator.check_schema(shape)
    validator: Any = Draft202012Validator(
        shape, registry=Registry()
    )  # the registry is empty: references resolve only within the schema
    accepts = validator.is_valid

    assert shape["type"] == "object"
    assert accepts(good)
    assert not accepts(bad)
    assert accepts(PENDING_RESULT)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (CallStatus.WORKING, None),
        (CallStatus.INPUT_REQUIRED, None),
        (CallStatus.COMPLETED, CallOutcome.RESULT),
        (CallStatus.COMPLETED, CallOutcome.TOOL_ERROR),
    ],
)
def test_an_exported_schema_accepts_each_pending_result(status: CallStatus, outcome: CallOutcome | None) -> None:
    """That of a call that has ended goes to a client that has not read its other large responses."""
    shape = export_tool({"name": "tool", "outputSchema": NODE}, is_modern=True)["outputSchema"]
    call = make_call(status=status, outcome=outcome)
    pending = build_pending_result(call, None, has_resource_link=False, is_error=False)
    validator: Any = Draft202012Validator(shape, registry=Registry())
    assert validator.is_valid(pending["structuredContent"])


def test_a_tool_without_an_output_schema_is_exported_unchanged() -> None:
    tool = {"name": "tool", "inputSchema": {"type": "object"}, "_meta": {"a": 1}, "futureField": [1]}
    assert export_tool(tool, is_modern=True) == export_tool(tool, is_modern=False) == tool


def test_keywords_that_clients_read_at_the_root_stay_there() -> None:
    """FastMCP's client builds typed values from these keywords."""
    own = {
        "title": "Sum",
        "type": "object",
        "properties": {"result": {"type": "integer"}},
        "x-fastmcp-wrap-result": True,
    }

    shape = export_tool({"name": "add", "outputSchema": {**own, "required": ["result"]}}, is_modern=False)[
        "outputSchema"
    ]

    assert {key: shape[key] for key in own} == own


def test_only_modern_clients_get_a_schema_of_other_types_than_objects() -> None:
    """A legacy client refuses the whole list otherwise."""
    own = {"type": "array", "items": {"type": "integer"}}
    tool: dict[str, Any] = {"name": "tool", "inputSchema": {"type": "object"}, "outputSchema": own}

    validator: Any = Draft202012Validator(export_tool(tool, is_modern=True)["outputSchema"])

    assert [validator.is_valid(content) for content in ([1, 2], PENDING_RESULT, ["one"])] == [True, True, False]
    assert export_tool(tool, is_modern=False) == {"name": "tool", "inputSchema": {"type": "object"}}


def test_the_listed_tool_itself_is_not_changed() -> None:
    tool: dict[str, Any] = {"name": "tool", "outputSchema": {"type": "object", "properties": {"a": {"$ref": "#"}}}}
    export_tool(tool, is_modern=True)
    assert tool["outputSchema"]["properties"]["a"]["$ref"] == "#"
