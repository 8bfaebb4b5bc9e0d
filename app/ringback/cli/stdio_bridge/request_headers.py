"""Computes each message's HTTP headers, from the message and from earlier responses."""

from collections.abc import Mapping
from typing import Any, Final, cast

from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types import PROTOCOL_VERSION_META_KEY, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

_TASK_METHODS: Final = ("tasks/get", "tasks/update", "tasks/cancel")
_NAME_PARAM_BY_METHOD: Final[Mapping[str, str]] = {**NAME_BEARING_METHODS, **dict.fromkeys(_TASK_METHODS, "taskId")}
"""The param that goes into `Mcp-Name`, by method. The tasks extension defines those of tasks, not the SDK."""


class RequestHeaders:
    def __init__(self) -> None:
        self._protocol_version: str | None = None
        self._header_arguments: dict[str, dict[tuple[str, ...], str]] = {}
        """By tool: the path of each argument that goes into a header, and the header's name."""

    def learn_from_response(self, request: JSONRPCRequest, response: JSONRPCResponse) -> None:
        """Learn the agreed protocol version, and which arguments of a tool go into headers."""
        if request.method == "initialize":
            self._protocol_version = response.result.get("protocolVersion")
        elif request.method == "tools/list":
            self._header_arguments |= _header_arguments_by_tool(response.result.get("tools"))

    def get_headers(self, message: JSONRPCMessage) -> dict[str, str]:
        if isinstance(message, JSONRPCRequest) and message.method == "initialize":
            return {}
        if isinstance(message, JSONRPCRequest | JSONRPCNotification):
            params: dict[str, Any] = message.params or {}
            if (version := read_modern_version(message)) is not None:
                return self._modern_headers(message.method, params, version)
        return self.get_session_headers()

    def get_session_headers(self) -> dict[str, str]:
        """The headers of a legacy session without a message."""
        return {MCP_PROTOCOL_VERSION_HEADER: self._protocol_version} if self._protocol_version else {}

    def _modern_headers(self, method: str, params: Mapping[str, Any], version: str) -> dict[str, str]:
        """The headers of 2026-07-28, where every request names its version."""
        headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: method}
        if isinstance(name := params.get(_NAME_PARAM_BY_METHOD.get(method, "")), str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            if method == "tools/call":
                headers |= mcp_param_headers(self._header_arguments.get(name, {}), params.get("arguments") or {})
        return headers


def read_modern_version(message: JSONRPCRequest | JSONRPCNotification) -> str | None:
    """The protocol version that a modern message names; None for a legacy one."""
    meta = (message.params or {}).get("_meta")
    version = cast("dict[str, Any]", meta).get(PROTOCOL_VERSION_META_KEY) if isinstance(meta, dict) else None
    return version if isinstance(version, str) else None


def _header_arguments_by_tool(tools: Any) -> dict[str, dict[tuple[str, ...], str]]:
    found: dict[str, dict[tuple[str, ...], str]] = {}
    for tool in cast("list[Any]", tools) if isinstance(tools, list) else []:
        match tool:
            case {"name": str() as name, "inputSchema": schema} if find_invalid_x_mcp_header(schema) is None:
                found[name] = x_mcp_header_map(schema)
            case _:
                pass
    return found
