"""Converts Ringback errors to the JSON-RPC errors of handlers (`schemas.jsonrpc_errors`).

Or to a tool result, where a model has to read the error. Details name tools instead of REST paths (`tool_advice`).
"""

from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY
from pydantic import ValidationError

from ringback.domain import errors
from ringback.domain.upstreams import UpstreamErrorResponse
from ringback.mcp_server.request_context import TASKS_EXTENSION
from ringback.mcp_server.tool_advice import name_tools
from ringback.schemas.jsonrpc_errors import build_error_data, choose_error_code
from ringback.schemas.validation_errors import describe_validation_errors

LEGACY_RESOURCE_NOT_FOUND_CODE: Final = -32002
ERRORS_SHOWN_MAX: Final = 3
"""Wrong params that one error names: a client can correct about this many at once."""


def to_mcp_error(error: errors.RingbackError) -> MCPError:
    return MCPError(choose_error_code(error), name_tools(error.detail), build_error_data(error))


def invalid_params(problem: ValidationError, *, root: str = "") -> MCPError:
    """Says what is wrong with the params of a request, without their values. The SDK would say only that they are invalid.

    `root` is the location of the validated value in the request.
    """
    details = "; ".join(describe_validation_errors(problem, root=root, errors_max=ERRORS_SHOWN_MAX))
    return MCPError(INVALID_PARAMS, f"Invalid request parameters. {details}", {"problem": errors.InvalidRequest.slug})


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


def upstream_mcp_error(error: UpstreamErrorResponse, *, is_modern: bool) -> MCPError:
    """The upstream's own error. For a resource that does not exist, a modern client gets the code of its version."""
    payload = error.error
    code = int(payload.get("code", INTERNAL_ERROR))
    if is_modern and code == LEGACY_RESOURCE_NOT_FOUND_CODE:
        code = INVALID_PARAMS
    return MCPError(code, str(payload.get("message", "")), payload.get("data"))
