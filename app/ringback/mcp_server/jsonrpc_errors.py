"""Converts Ringback errors to JSON-RPC errors: a code by kind, the detail, and the problem's slug and extras in `data`.

Or to a tool result, where a model has to read the error. Details name tools instead of REST paths (`tool_advice`).
"""

from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY

from ringback.domain import errors
from ringback.domain.upstreams import UpstreamErrorResponse
from ringback.mcp_server.request_context import TASKS_EXTENSION
from ringback.mcp_server.tool_advice import name_tools

UNAVAILABLE_CODE: Final = -32000
"""In the range of implementation-defined errors; the request can be sent again."""
FORBIDDEN_CODE: Final = -32001
CONFLICT_CODE: Final = -32009
LEGACY_RESOURCE_NOT_FOUND_CODE: Final = -32002

_ERROR_CODES: Final[tuple[tuple[type[errors.RingbackError], int], ...]] = (
    (errors.InvalidRequest, INVALID_PARAMS),
    (errors.NotFound, INVALID_PARAMS),
    (errors.Gone, INVALID_PARAMS),
    (errors.Unauthenticated, FORBIDDEN_CODE),
    (errors.Forbidden, FORBIDDEN_CODE),
    (errors.Conflict, CONFLICT_CODE),
    (errors.QuotaExceeded, UNAVAILABLE_CODE),
    (errors.Unavailable, UNAVAILABLE_CODE),
)


def to_mcp_error(error: errors.RingbackError) -> MCPError:
    code = next((code for kind, code in _ERROR_CODES if isinstance(error, kind)), INTERNAL_ERROR)
    data = {"problem": error.slug, **error.extra}
    if isinstance(error, errors.QuotaExceeded):
        data["retry_after_seconds"] = error.retry_after_seconds
    return MCPError(code, name_tools(error.detail), data)


def build_error_result(text: str) -> dict[str, Any]:
    """A refusal as a CallToolResult: a model reads it and corrects its arguments; JSON-RPC errors often never reach it."""
    return {"content": [{"type": "text", "text": name_tools(text)}], "isError": True}


def method_not_found(method: str) -> MCPError:
    """The same error as the SDK's."""
    return MCPError(METHOD_NOT_FOUND, "Method not found", method)


def resource_not_found(error: errors.NotFound, *, is_modern: bool) -> MCPError:
    """Legacy versions have their own code for it; modern ones use -32602 (SEP-2164)."""
    return MCPError(INVALID_PARAMS if is_modern else LEGACY_RESOURCE_NOT_FOUND_CODE, error.detail, error.extra or None)


def tasks_capability_missing() -> MCPError:
    """Sent with HTTP status 400 (ext-tasks, Protocol Errors)."""
    return MCPError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"Missing required client capability: declare the extension {TASKS_EXTENSION} with this request.",
        {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}},
    )


def task_required(*, is_modern: bool) -> MCPError:
    """The error of a call without a task to a task-only tool (2025-11-25, Tool-Level Negotiation)."""
    if is_modern:
        return tasks_capability_missing()
    return MCPError(METHOD_NOT_FOUND, "This tool must be called as a task: send params.task.")


def upstream_mcp_error(error: UpstreamErrorResponse) -> MCPError:
    """The upstream's own error, unchanged."""
    payload = error.error
    return MCPError(int(payload.get("code", INTERNAL_ERROR)), str(payload.get("message", "")), payload.get("data"))
