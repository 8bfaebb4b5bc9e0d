"""Ringback's errors as JSON-RPC errors: a code by kind, the detail, and the problem's slug and extras in `data`.

A refusal at an MCP endpoint has this form with every HTTP status, because clients show the message of a JSON-RPC error and no
other body.
"""

from typing import Any, Final

from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR

from ringback.domain import errors

UNAVAILABLE_CODE: Final = -32000
"""In the range of implementation-defined errors; the request can be sent again."""
FORBIDDEN_CODE: Final = -32001
CONFLICT_CODE: Final = -32009

MESSAGE_ID_KEY: Final = "ringback.jsonrpc_id"
"""The key, in the ASGI scope's state, of the id of the JSON-RPC request; absent before it is read, and without a valid id."""

_ERROR_CODES: Final[tuple[tuple[type[errors.RingbackError], int], ...]] = (
    (errors.UnreadableMessage, PARSE_ERROR),
    (errors.UnstorableMessage, INVALID_PARAMS),
    (errors.MalformedMessage, INVALID_REQUEST),
    (errors.InvalidRequest, INVALID_PARAMS),
    (errors.UnknownSession, INVALID_REQUEST),
    (errors.NotFound, INVALID_PARAMS),
    (errors.Gone, INVALID_PARAMS),
    (errors.Unauthenticated, FORBIDDEN_CODE),
    (errors.Forbidden, FORBIDDEN_CODE),
    (errors.Conflict, CONFLICT_CODE),
    (errors.QuotaExceeded, UNAVAILABLE_CODE),
    (errors.Unavailable, UNAVAILABLE_CODE),
)


def choose_error_code(error: errors.RingbackError, *, default: int = INTERNAL_ERROR) -> int:
    return next((code for kind, code in _ERROR_CODES if isinstance(error, kind)), default)


def build_error_data(error: errors.RingbackError) -> dict[str, Any]:
    data = {"problem": error.slug, **error.extra}
    if isinstance(error, errors.QuotaExceeded):
        data["retry_after_seconds"] = error.retry_after_seconds
    return data


def build_error_message(error: errors.RingbackError, request_id: int | str | None, *, status: int) -> dict[str, Any]:
    """The body of the HTTP response with this status; without a known request its id is null (JSON-RPC 2.0, §5)."""
    default = INTERNAL_ERROR if status >= 500 else INVALID_REQUEST  # noqa: PLR2004 - the class of server errors
    failure = {
        "code": choose_error_code(error, default=default),
        "message": error.detail,
        "data": build_error_data(error),
    }
    return {"jsonrpc": "2.0", "id": request_id, "error": failure}
