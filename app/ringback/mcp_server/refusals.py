"""Errors of ours as JSON-RPC errors: the code by kind, the detail as it stands, the problem's slug and extras in `data`.

Or as a result, where a model is to read it.
"""

from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY

from ringback.domain import errors
from ringback.domain.upstreams import UpstreamRefused
from ringback.mcp_server.exchange import TASKS

UNAVAILABLE: Final = -32000
"""Of the range that JSON-RPC leaves to implementations; what has it may be sent again."""
FORBIDDEN: Final = -32001
CONFLICT: Final = -32009
LEGACY_RESOURCE_NOT_FOUND: Final = -32002

_CODE_OF: Final[tuple[tuple[type[errors.RingbackError], int], ...]] = (
    (errors.InvalidRequest, INVALID_PARAMS),
    (errors.NotFound, INVALID_PARAMS),
    (errors.Gone, INVALID_PARAMS),
    (errors.Unauthenticated, FORBIDDEN),
    (errors.Forbidden, FORBIDDEN),
    (errors.Conflict, CONFLICT),
    (errors.QuotaExceeded, UNAVAILABLE),
    (errors.Unavailable, UNAVAILABLE),
)


def refusal(error: errors.RingbackError) -> MCPError:
    code = next((code for kind, code in _CODE_OF if isinstance(error, kind)), INTERNAL_ERROR)
    data = {"problem": error.slug, **error.extra}
    if isinstance(error, errors.QuotaExceeded):
        data["retry_after_seconds"] = error.retry_after_seconds
    return MCPError(code, error.detail, data)


def refused_result(text: str) -> dict[str, Any]:
    """A refusal as a CallToolResult: a model reads those and mends its arguments; JSON-RPC errors often never reach it."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def unknown_method(method: str) -> MCPError:
    """In the SDK's own words."""
    return MCPError(METHOD_NOT_FOUND, "Method not found", method)


def unknown_resource(error: errors.NotFound, *, modern: bool) -> MCPError:
    """It had a code of its own until 2026-07-28 (SEP-2164)."""
    return MCPError(INVALID_PARAMS if modern else LEGACY_RESOURCE_NOT_FOUND, error.detail, error.extra or None)


def tasks_undeclared() -> MCPError:
    """Said with HTTP status 400 (ext-tasks, Protocol Errors)."""
    return MCPError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"Missing required client capability: declare the extension {TASKS} with this request.",
        {"requiredCapabilities": {"extensions": {TASKS: {}}}},
    )


def task_required(*, modern: bool) -> MCPError:
    """A tool that runs as a task only was called without one (2025-11-25, Tool-Level Negotiation)."""
    if modern:
        return tasks_undeclared()
    return MCPError(METHOD_NOT_FOUND, "This tool must be called as a task: send params.task.")


def upstream_refusal(error: UpstreamRefused) -> MCPError:
    """An upstream's own error, as it came."""
    told = error.error
    return MCPError(int(told.get("code", INTERNAL_ERROR)), str(told.get("message", "")), told.get("data"))
