"""Which tools are Ringback's own."""

import pytest
from mcp_types import JSONRPCRequest

from ringback.cli.stdio_bridge.call_cancellation import may_start_call
from ringback.domain.ids import CallId
from ringback.mcp_server.event_ids import describe_request
from ringback.protocol.builtin_tools import is_builtin_tool


@pytest.mark.parametrize(
    ("name", "expected"),
    [("ringback_wait_for_call", True), ("ringback__deploy", False), ("git__git_log", False), ("ringback", False)],
)
def test_a_tool_of_an_upstream_is_none_of_ringbacks_own_whatever_the_upstream_is_called(
    name: str, *, expected: bool
) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": {"n": 1}}}
    described = describe_request(call, CallId("call_1"))

    assert is_builtin_tool(name) is expected
    assert may_start_call(JSONRPCRequest.model_validate(call)) is not expected
    assert described is not None
    assert described.params is not None
    assert ("arguments" in described.params) is expected
