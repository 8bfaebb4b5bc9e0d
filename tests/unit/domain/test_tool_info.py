"""What a listed tool says about its calls."""

from typing import Any

import pytest

from ringback.domain.upstreams import ToolInfo

HEADER: dict[str, Any] = {"type": "string", "x-mcp-header": "Region"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object", "properties": {"region": HEADER}}, True),
        ({"type": "object", "properties": {"place": {"type": "object", "properties": {"region": HEADER}}}}, True),
        ({"anyOf": [{"type": "object"}, {"properties": {"region": HEADER}}]}, True),
        ({"type": "object", "properties": {"region": {"type": "string", "description": "x-mcp-header"}}}, False),
        ({}, False),
    ],
)
def test_a_schema_without_the_keyword_needs_not_be_read_for_each_call(
    schema: dict[str, Any], *, expected: bool
) -> None:
    tool = ToolInfo(name="move", description=None, input_schema=schema, raw={})

    assert tool.may_repeat_arguments is expected
