"""The `_meta` and the headers with which each request names its protocol.

Requests use the SDK's dispatcher and not `ClientSession.send_request`, which drops nulls from arguments and unknown keys from
results, and rejects results that a host could still use. So this module adds what the session would add.
"""

from collections.abc import Mapping
from typing import Any, Final

from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

_TASK_METHODS: Final = ("tasks/get", "tasks/update", "tasks/cancel")
_NAME_HEADER_PARAMS: Final = {**NAME_BEARING_METHODS, **dict.fromkeys(_TASK_METHODS, "taskId")}
"""The parameter that a modern request repeats in a header, by method."""


def add_envelope(
    method: str,
    params: Mapping[str, Any],
    *,
    protocol_version: str,
    client_info: Mapping[str, Any],
    client_capabilities: Mapping[str, Any],
    tool_input_schema: Mapping[str, Any] | None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """The params and the headers of a request. Legacy negotiated the rest in its handshake and needs only the version.

    `tool_input_schema` names the arguments of a tools/call that are repeated in headers; None if it is known to name none.
    """
    headers = {MCP_PROTOCOL_VERSION_HEADER: protocol_version}
    if protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return dict(params), headers
    headers[MCP_METHOD_HEADER] = method
    if (name := _NAME_HEADER_PARAMS.get(method)) is not None:
        headers[MCP_NAME_HEADER] = encode_header_value(params[name])
    if method == "tools/call" and tool_input_schema is not None:
        headers |= mcp_param_headers(x_mcp_header_map(tool_input_schema), params["arguments"])
    envelope = {
        PROTOCOL_VERSION_META_KEY: protocol_version,
        CLIENT_INFO_META_KEY: client_info,
        CLIENT_CAPABILITIES_META_KEY: dict(client_capabilities),
    }
    return {**params, "_meta": {**params.get("_meta", {}), **envelope}}, headers
