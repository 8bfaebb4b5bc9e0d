"""HTTP failures as JSON-RPC errors of ours (`transport_errors`).

The SDK's client transport (2.3.0) does not catch exceptions of a POST: they end the session with every call in flight. So a
transport of ours raises nothing for a POST, and returns these responses instead.
"""

import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, cast

import httpx2
from mcp.shared.dispatcher import coerce_request_id
from mcp_types import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    ErrorData,
    JSONRPCError,
    RequestId,
)

from ringback.protocol.errors import LoginRequired
from ringback.protocol.sessions import HANDSHAKE_METHODS, PING_METHOD, SESSION_HEADER
from ringback.protocol.transport_errors import TransportErrorCode, make_login_error, make_transport_error

MESSAGE: Final = "ringback/message"
"""The response extension with the decoded JSON-RPC message of the body."""
CONNECT_TIMEOUT_SECONDS: Final = 10.0
"""For DNS, TCP and TLS together; a host that needs longer counts as down."""
WRITE_TIMEOUT_SECONDS: Final = 60.0
"""The request fails if the upstream accepts none of its bytes for this long."""
_UNKNOWN_SESSION_CODE: Final = -32000
"""The error code, with status 400, of servers that follow the examples of the TypeScript SDK, for an unknown session."""
_SESSION_NOT_FOUND_CODE: Final = -32001
"""The error code, with status 404, of servers on the SDK for TypeScript."""
_REFUSING_CODES: Final = frozenset({None, INVALID_REQUEST, _UNKNOWN_SESSION_CODE})
"""The codes of refusals that only their words identify; None is that of a body without a code."""
_SESSION: Final = re.compile(r"\bsession\b", re.IGNORECASE)
_ABOUT_SESSION: Final = (
    "or|valid|invalid|unknown|missing|expired|such|active|existing|required|header|transport|server|client|found|for"
)
_BEGINS_WITH_SESSION: Final = re.compile(
    r"(?:(?:bad|invalid) request|not found|error)?[\s:.,]*"
    rf"(?:the |(?:no|invalid|unknown|missing|expired)(?:\s+(?:{_ABOUT_SESSION})){{0,4}}\s+)?(?:mcp[- ])?session\b",
    re.IGNORECASE,
)
"""A message about the session of MCP. That of a tool may be about a browser's session, say: 'No browser session is open'."""
SESSION_DOUBTED: Final = "ringback/session_doubted"
"""The response extension of an answer of the server whose status says that it does not know the session."""
_BEGINS_WITH_PROTOCOL: Final = re.compile(
    r"(?:(?:bad|invalid) request|error)?[\s:.,]*(?:(?:the )?server (?:is )?not initialized\b|not initialized\b"
    r"|(?:(?:unsupported|invalid|missing|unknown) )?(?:mcp[- ])?protocol version\b)",
    re.IGNORECASE,
)
_OTHER_PROTOCOL: Final = re.compile(r"\bsession\b|\binitialized\b|protocol version", re.IGNORECASE)
REFUSAL_BYTES_MAX: Final = 1024
"""Bytes of a refusal that is a text: a sentence. A larger body is something else."""
REFUSAL_JSON_BYTES_MAX: Final = 64 * 1024
"""The same for JSON. Servers on the SDK for Java send the trace of an exception with it. Reading it stops the event loop."""
_REFUSING: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND})
_OUTCOMES: Final = frozenset({"result", "error"})
_JSON_RPC: Final = '"jsonrpc"'
_CONNECT_ERRORS: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_AUTHORIZATION: Final = "authorization"
_UNAVAILABLE: Final = frozenset({429, 502, 503, 504})
"""What a proxy returns while its server restarts, or to too many requests. It may have passed the request on before."""


def send_failure_response(error: Exception) -> httpx2.Response:
    """The response for an exception that sending a request raised: whether the upstream may have read it."""
    name = type(error).__name__
    if isinstance(error, httpx2.ConnectError) and _is_of_tls(error):
        return error_response(
            TransportErrorCode.TLS_FAILED, "The upstream could not be connected to, because TLS failed."
        )
    if isinstance(error, _CONNECT_ERRORS):
        return error_response(TransportErrorCode.NOT_SENT, f"The upstream could not be connected to ({name}).")
    return error_response(TransportErrorCode.RESPONSE_LOST, f"The connection was lost before an answer came ({name}).")


def _is_of_tls(error: BaseException) -> bool:
    cause = error.__cause__ or error.__context__
    return cause is not None and (isinstance(cause, ssl.SSLError) or _is_of_tls(cause))


def read_failure_response(error: Exception) -> httpx2.Response:
    """The response for an exception that reading a body raised."""
    return error_response(
        TransportErrorCode.RESPONSE_LOST,
        f"The connection was lost in the middle of the answer ({type(error).__name__}).",
    )


def session_not_found_response() -> httpx2.Response:
    return error_response(
        TransportErrorCode.SESSION_NOT_FOUND, "The upstream no longer knew the session, so it did not take the request."
    )


def _protocol_refused_response() -> httpx2.Response:
    """As for an unknown session: the next handshake finds out what the server speaks."""
    return error_response(
        TransportErrorCode.SESSION_NOT_FOUND,
        "The upstream no longer spoke the protocol version of the request, so it did not take it.",
    )


def names_unknown_session(
    request: httpx2.Request, response: httpx2.Response, body: bytes, sent: RequestId | None
) -> bool:
    """Whether the server refuses a request, unread, because it does not know its session any more. `sent` is its id.

    By the specification it says so with 404. Many respond with 400: those on the SDK for Python until 1.25 with a sentence, and
    those that follow the examples of the TypeScript SDK with a JSON-RPC error without an id. An error with the id of the
    request may be that of its tool, which has run, unless its message begins with the session.
    """
    return response.status_code in _REFUSING and _is_session_unknown(request, response, _read_refusal(body, sent))


def _is_session_unknown(request: httpx2.Request, response: httpx2.Response, refusal: "_Refusal") -> bool:
    if SESSION_HEADER not in request.headers:
        return False
    begins_with_session = _BEGINS_WITH_SESSION.match(refusal.message) is not None
    if response.status_code == HTTPStatus.NOT_FOUND:
        return not refusal.is_answer or refusal.code == _SESSION_NOT_FOUND_CODE or begins_with_session
    if refusal.code == _UNKNOWN_SESSION_CODE and not refusal.is_answer:
        return True
    is_about_session = begins_with_session if refusal.is_answer else _SESSION.search(refusal.message) is not None
    return refusal.code in _REFUSING_CODES and is_about_session


def doubts_session(request: httpx2.Request, response: httpx2.Response, method: str, error: ErrorData) -> bool:
    """By the specification, 404 says that the session has ended, also if the body is the answer to the request.

    Some servers send it with the error that they do not know a method. A `ping` only asks whether the server responds.
    """
    is_missing_method = method == PING_METHOD or error.code == METHOD_NOT_FOUND
    return SESSION_HEADER in request.headers and response.status_code == HTTPStatus.NOT_FOUND and not is_missing_method


def _names_other_protocol(response: httpx2.Response, refusal: "_Refusal") -> bool:
    """Whether the server refuses a request, unread, because it is not of a protocol version that the server has now.

    2026-07-28 has a code for it. A server that was replaced by an older one finds no session in a modern request.
    """
    if response.status_code != HTTPStatus.BAD_REQUEST:
        return False
    if refusal.code not in _REFUSING_CODES:
        return refusal.code == UNSUPPORTED_PROTOCOL_VERSION
    begins = _BEGINS_WITH_SESSION.match(refusal.message) or _BEGINS_WITH_PROTOCOL.match(refusal.message)
    return (begins if refusal.is_answer else _OTHER_PROTOCOL.search(refusal.message)) is not None


def find_refusal(
    request: httpx2.Request, response: httpx2.Response, method: str, body: bytes, sent: RequestId
) -> httpx2.Response | None:
    """The response for a body that says that the session, or its protocol, is not known any more; None for another.

    `sent` is the id of the request. A handshake is refused for itself: it chooses the next protocol.
    """
    if response.status_code not in _REFUSING:
        return None
    refusal = _read_refusal(body, sent)
    if _is_session_unknown(request, response, refusal):
        return session_not_found_response()
    is_refused = method not in HANDSHAKE_METHODS and _names_other_protocol(response, refusal)
    return _protocol_refused_response() if is_refused else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """What a body says that may refuse a request."""

    message: str = ""
    """Of a JSON-RPC error. Of another body its text, if it is short."""
    code: int | None = None
    is_answer: bool = False
    """Whether it answers the request, so that its server has read it, or may do so."""


def _read_refusal(body: bytes, sent: RequestId | None) -> _Refusal:
    """A body that is too long for a refusal, or a JSON-RPC message that cannot be read, may be the answer."""
    if len(body) > REFUSAL_JSON_BYTES_MAX:
        return _Refusal(is_answer=True)
    text = body.decode("utf-8-sig", errors="replace")
    short_text = text if len(body) <= REFUSAL_BYTES_MAX else ""
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        return _Refusal(message=short_text, is_answer=_JSON_RPC in text)
    messages = cast("list[Any]", document) if isinstance(document, list) else [document]
    answer = next((each for each in messages if _is_answer(each, sent)), None)
    match cast("Any", document if answer is None else answer):
        case {"error": {"code": int() as code, "message": str() as message}}:
            return _Refusal(message=message, code=code, is_answer=answer is not None)
        case {"error": str() as message}:
            return _Refusal(message=message, is_answer=answer is not None)
        case _:
            return _Refusal(message=short_text, is_answer=answer is not None)


def _is_answer(message: Any, sent: RequestId | None) -> bool:
    """Whether it is a response with the id of the request. A body with nothing but the id (Helidon) is none."""
    match message:
        case {"id": (int() | float() | str()) as request_id, **members} if not members.keys().isdisjoint(_OUTCOMES):
            return sent is not None and coerce_request_id(cast("RequestId", request_id)) == coerce_request_id(sent)
        case _:
            return False


def reject_by_status(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response | None:
    """The response for a status that rejects the session or the credentials; None for other statuses.

    A 404 with JSON may be the server's answer to the request (`names_unknown_session`).
    """
    is_unknown = SESSION_HEADER in request.headers and response.status_code == HTTPStatus.NOT_FOUND
    if is_unknown and not _has_readable_json(response):
        return session_not_found_response()
    if response.status_code != HTTPStatus.UNAUTHORIZED:
        return None
    if _AUTHORIZATION in request.headers:
        return error_response(
            TransportErrorCode.CREDENTIALS_REJECTED, "The upstream refuses the credentials that are configured for it."
        )
    message = "The upstream requires credentials, and none are configured: a header, or client_credentials."
    return error_response(TransportErrorCode.CREDENTIALS_REQUIRED, message)


def _has_readable_json(response: httpx2.Response) -> bool:
    kind, encoding = (response.headers.get(name, "") for name in ("content-type", "content-encoding"))
    return kind.lower().startswith("application/json") and encoding in {"", "identity"}


async def read_bounded(response: httpx2.Response, limit: int) -> bytes | None:
    """The body; None if it is larger than `limit` bytes."""
    body = bytearray()
    async for chunk in cast("httpx2.AsyncByteStream", response.stream):
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)


def invalid_response_code(response: httpx2.Response) -> TransportErrorCode:
    """The code for a response that is no MCP response, by its status."""
    if response.status_code in _UNAVAILABLE:
        return TransportErrorCode.UPSTREAM_UNAVAILABLE
    has_failed = response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
    return TransportErrorCode.UPSTREAM_FAILED if has_failed else TransportErrorCode.INVALID_RESPONSE


def login_required_response(failure: LoginRequired) -> httpx2.Response:
    return _respond_with(make_login_error(failure))


def error_response(code: TransportErrorCode, message: str) -> httpx2.Response:
    return _respond_with(make_transport_error(code, message))


def _respond_with(error: Mapping[str, Any]) -> httpx2.Response:
    extensions = {MESSAGE: JSONRPCError.model_validate(error)}
    return httpx2.Response(HTTPStatus.SERVICE_UNAVAILABLE, json=error, extensions=extensions)
