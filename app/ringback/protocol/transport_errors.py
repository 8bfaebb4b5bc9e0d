"""Errors that the transports make, as JSON-RPC errors that pass through the SDK, and the size limits of messages.

A transport must not raise: the SDK would end the session. So it returns a JSON-RPC error with `TRANSPORT_ERROR_MARKER`, and
`to_request_error` converts it to an exception of `errors` on the other side of the SDK. The marker is random for each process,
and no request contains it: an upstream that sends these codes cannot claim that a tool did not run or that a login is required.
"""

import secrets
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, cast

from mcp_types import CONNECTION_CLOSED, PARSE_ERROR, ErrorData

from ringback.protocol.errors import (
    CredentialsRejected,
    CredentialsRequired,
    InvalidUpstreamResponse,
    LoginRequired,
    RequestFailed,
    RequestNotSent,
    ResponseLost,
    ScopeRefused,
    SessionGone,
    SessionNotFound,
    TlsFailed,
    TokenReplaced,
    TokensUnreadable,
    TokenUnavailable,
    UpstreamError,
    UpstreamServerError,
    UpstreamUnavailable,
)

RESULT_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest accepted response. Images and reports fit, and a few hundred at once fit into memory."""
LIST_BYTES_MAX: Final = 8 * 1024 * 1024
"""For all pages of a list together. Ten thousand tools with usual schemas fit, and a hundred such upstreams fit into memory."""
EVENT_BYTES_MAX: Final = RESULT_BYTES_MAX + 4096
"""An event is a result with its JSON-RPC envelope."""
TRANSPORT_ERROR_MARKER: Final = f"ringback/transport/{secrets.token_hex(16)}"
"""The `data` member of the errors made here. 128 random bits, which an upstream cannot guess."""
_MESSAGE_LENGTH_MAX: Final = 200


class TransportErrorCode(IntEnum):
    """Codes of the errors made here, from the range that MCP leaves to implementations (2026-07-28: -32000 to -32019)."""

    TLS_FAILED = -32006
    UPSTREAM_FAILED = -32007
    UPSTREAM_UNAVAILABLE = -32008
    SCOPE_REFUSED = -32009
    TOKEN_REPLACED = -32010
    NOT_SENT = -32011
    SESSION_NOT_FOUND = -32012
    RESPONSE_LOST = -32013
    INVALID_RESPONSE = -32014
    SESSION_GONE = -32015
    CREDENTIALS_REJECTED = -32016
    CREDENTIALS_REQUIRED = -32017
    TOKEN_UNAVAILABLE = -32018
    LOGIN_REQUIRED = -32019


_ERROR_BY_CODE: Final[dict[int, Callable[[str], RequestFailed]]] = {
    TransportErrorCode.TLS_FAILED: TlsFailed,
    TransportErrorCode.UPSTREAM_FAILED: UpstreamServerError,
    TransportErrorCode.UPSTREAM_UNAVAILABLE: UpstreamUnavailable,
    TransportErrorCode.SCOPE_REFUSED: ScopeRefused,
    TransportErrorCode.TOKEN_REPLACED: TokenReplaced,
    TransportErrorCode.NOT_SENT: RequestNotSent,
    TransportErrorCode.SESSION_NOT_FOUND: SessionNotFound,
    TransportErrorCode.RESPONSE_LOST: ResponseLost,
    TransportErrorCode.INVALID_RESPONSE: InvalidUpstreamResponse,
    TransportErrorCode.SESSION_GONE: SessionGone,
    TransportErrorCode.CREDENTIALS_REJECTED: CredentialsRejected,
    TransportErrorCode.CREDENTIALS_REQUIRED: CredentialsRequired,
    TransportErrorCode.TOKEN_UNAVAILABLE: TokenUnavailable,
}


def to_request_error(error: ErrorData) -> RequestFailed:
    """Convert an error of the SDK: made by a transport, made by the SDK, or sent by the upstream."""
    if error.code == TransportErrorCode.LOGIN_REQUIRED and (details := _get_login_details(error.data)) is not None:
        kind = TokensUnreadable if details.pop("tokens_are_unreadable") else LoginRequired
        return kind(error.message, **details)
    if error.data == TRANSPORT_ERROR_MARKER and error.code in _ERROR_BY_CODE:
        return _ERROR_BY_CODE[error.code](error.message)
    if error.code == CONNECTION_CLOSED and error.message.startswith("SSE stream failed"):
        return InvalidUpstreamResponse(
            f"The upstream's answer is larger than {RESULT_BYTES_MAX} bytes, or no event stream."
        )
    if error.code == CONNECTION_CLOSED and error.message.startswith(("SSE stream ended", "Connection closed")):
        return ResponseLost("The upstream ended the connection before it answered. The tool may have run.")
    if error.code == PARSE_ERROR and error.message.startswith("Failed to parse"):
        return InvalidUpstreamResponse("The upstream answered with something that is no JSON-RPC message.")
    return UpstreamError(error.model_dump(mode="json", exclude_unset=True))


def too_large_message(limit: int) -> str:
    return f"The upstream's answer is larger than {limit} bytes."


def make_login_error(failure: LoginRequired) -> dict[str, Any]:
    """The error of a request that requires a login. Its `data` carries what is known of the tokens."""
    details = {
        "scope": failure.scope,
        "tokens_version": failure.tokens_version,
        "tokens_are_unreadable": isinstance(failure, TokensUnreadable),
    }
    data = {TRANSPORT_ERROR_MARKER: details}
    error = {
        "code": int(TransportErrorCode.LOGIN_REQUIRED),
        "message": str(failure)[:_MESSAGE_LENGTH_MAX],
        "data": data,
    }
    return {"jsonrpc": "2.0", "id": None, "error": error}


def _get_login_details(data: Any) -> dict[str, Any] | None:
    """What `make_login_error` has put into the error; None if the error was not made here."""
    details = cast("Mapping[str, Any]", data).get(TRANSPORT_ERROR_MARKER) if isinstance(data, Mapping) else None
    return None if details is None else dict(details)


def make_transport_error(code: TransportErrorCode, message: str) -> dict[str, Any]:
    error = {"code": int(code), "message": message[:_MESSAGE_LENGTH_MAX], "data": TRANSPORT_ERROR_MARKER}
    return {"jsonrpc": "2.0", "id": None, "error": error}
