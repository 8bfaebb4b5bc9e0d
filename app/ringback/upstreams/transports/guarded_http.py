"""HTTP towards an upstream, made so that one lost request stays one lost request.

    SDK transport ──POST──▶ GuardedTransport ──▶ HttpTransport ──▶ upstream
                  ◀── an answer, or an error of ours (`Trouble`) with status 503 ──┘

The SDK's client transport (2.3.0) does not catch what a POST raises: it ends the whole session, with every call in flight on
it. So nothing is raised here. What goes wrong becomes a JSON-RPC error that carries `MARK`, and `failure_of` turns it into the
kind of failure that it is, on the far side of the SDK. For the same reason a JSON body is read here, whole and bounded: one
that breaks off would be raised too, and one that answers another request would leave its call waiting for ever. Event streams
are looked through as they come (`event_stream`); the SDK itself copes with those that break.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from http import HTTPStatus
from typing import Any, Final, cast

import httpx2
from mcp.shared.dispatcher import coerce_request_id
from mcp_types import CONNECTION_CLOSED, PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCResponse, RequestId

from ringback import __version__
from ringback.domain import jsontext
from ringback.notifier.configured_hosts import LookUp
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.errors import (
    CredentialsRejected,
    CredentialsRequired,
    InvalidUpstreamResponse,
    RequestFailed,
    RequestNotSent,
    ResponseLost,
    SessionGone,
    SessionNotFound,
    TokenUnavailable,
    UpstreamError,
)
from ringback.upstreams.faults import Fault, FaultCounter
from ringback.upstreams.transports.cookies import CookieTransport
from ringback.upstreams.transports.event_stream import CheckedEventStream
from ringback.upstreams.transports.http_pool import PooledHttpTransport, ssl_context
from ringback.upstreams.transports.large_results import LARGE_BYTES, LargeResults
from ringback.upstreams.transports.message_decoder import BOM, DecodedMessage, UnreadableMessage, decode_messages
from ringback.upstreams.transports.oauth import BearerTokenTransport, ClientCredentialsTokens

RESULT_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest answer that is taken: images and reports fit, and a few hundred at once still fit into memory."""
LIST_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of all pages of a list, and so of one. Ten thousand tools with schemas of a usual size fit, and so do a hundred such
upstreams into memory."""
EVENT_BYTES_MAX: Final = RESULT_BYTES_MAX + 4096
"""An event is a result and the JSON-RPC around it."""
CONNECT_TIMEOUT_SECONDS: Final = 10.0
"""DNS, TCP and TLS together; a host that needs longer is down."""
WRITE_TIMEOUT_SECONDS: Final = 60.0
"""An upstream that does not take a request's next bytes for this long does not take them at all."""
NOTIFICATION_TIMEOUT_SECONDS: Final = 5.0
"""For the answer to a notification or a DELETE. The SDK sends notifications one after the other, in line with requests, so
a silent upstream would otherwise stop every later call."""

TRANSPORT_ERROR_MARKER: Final = "ringback/transport"
"""`data` of the errors made here."""
MESSAGE: Final = "ringback/message"
"""The extension of a response that holds the JSON-RPC message of its body, already read."""
_CONNECT_ERRORS: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
SESSION_HEADER: Final = "mcp-session-id"
_AUTHORIZATION: Final = "authorization"
_UNKNOWN_SESSION_CODE: Final = -32000
"""What servers made after the TypeScript SDK's examples answer, with status 400, to a session they do not know."""
_MESSAGE_LENGTH_MAX: Final = 200


class TransportErrorCode(IntEnum):
    """Codes of the errors made here, from the range that MCP leaves to implementations (2026-07-28: -32000 to -32019)."""

    NOT_SENT = -32011
    SESSION_NOT_FOUND = -32012
    RESPONSE_LOST = -32013
    INVALID_RESPONSE = -32014
    SESSION_GONE = -32015
    CREDENTIALS_REJECTED = -32016
    CREDENTIALS_REQUIRED = -32017
    TOKEN_UNAVAILABLE = -32018


_ERROR_BY_CODE: Final[dict[int, Callable[[str], RequestFailed]]] = {
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
    """What an error that the SDK reports stands for: one of ours, one that the SDK made up, or the upstream's own."""
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


def make_guarded_transport(
    config: UpstreamConfig,
    tokens: ClientCredentialsTokens | None,
    *,
    look_up: LookUp,
    faults: FaultCounter,
    large_results: LargeResults,
) -> "GuardedTransport":
    http = CookieTransport(PooledHttpTransport(ssl_context(config.url), look_up=look_up))
    return GuardedTransport(
        http if tokens is None else BearerTokenTransport(http, tokens), faults=faults, large_results=large_results
    )


def make_http_client(
    config: UpstreamConfig, transport: httpx2.AsyncBaseTransport, headers: Mapping[str, str]
) -> httpx2.AsyncClient:
    """A client for one upstream. Nothing that reaches Ringback is forwarded; only these and the configured headers go out."""
    return httpx2.AsyncClient(
        transport=transport,
        headers={"user-agent": f"ringback/{__version__}", **config.headers, **headers, "accept-encoding": "identity"},
        # No read timeout: closing the stream would cancel the tool. The call's own deadline decides.
        timeout=httpx2.Timeout(connect=CONNECT_TIMEOUT_SECONDS, write=WRITE_TIMEOUT_SECONDS, read=None, pool=None),
        trust_env=False,
    )


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Raises nothing for a POST, and hands on only what the SDK can make an answer of."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, *, faults: FaultCounter, large_results: LargeResults) -> None:
        self._inner = inner
        self._faults = faults
        self._large_results = large_results

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method != "POST":
            # The SDK contains what the listening GET and the closing DELETE raise.
            response = await self._inner.handle_async_request(
                _with_read_timeout(request) if request.method == "DELETE" else request
            )
            return self._check_event_stream(response, None, EVENT_BYTES_MAX) if _is_event_stream(response) else response
        try:
            request_id, method = _parse_request(await request.aread())
            response = await self._inner.handle_async_request(
                request if request_id is not None else _with_read_timeout(request)
            )
        except (CredentialsRejected, TokenUnavailable) as failure:
            return _error_response(
                TransportErrorCode.CREDENTIALS_REJECTED
                if isinstance(failure, CredentialsRejected)
                else TransportErrorCode.TOKEN_UNAVAILABLE,
                str(failure),
            )
        except _CONNECT_ERRORS as error:
            return _error_response(
                TransportErrorCode.NOT_SENT, f"The upstream could not be connected to ({type(error).__name__})."
            )
        except Exception as error:  # noqa: BLE001 - the boundary: whatever is raised here would end every call in flight
            return _error_response(
                TransportErrorCode.RESPONSE_LOST,
                f"The connection was lost before an answer came ({type(error).__name__}).",
            )
        try:
            return await self._check_response(request, response, request_id, method)
        except Exception as error:  # noqa: BLE001 - the same boundary, for a body that breaks off
            return _error_response(
                TransportErrorCode.RESPONSE_LOST,
                f"The connection was lost in the middle of the answer ({type(error).__name__}).",
            )

    async def _check_response(
        self, request: httpx2.Request, response: httpx2.Response, request_id: RequestId | None, method: str
    ) -> httpx2.Response:
        kind = _content_type(response)
        encoded = response.headers.get("content-encoding", "identity") != "identity"
        limit = LIST_BYTES_MAX if method.endswith("/list") else RESULT_BYTES_MAX
        if response.is_success and _is_event_stream(response) and request_id is not None and not encoded:
            return self._check_event_stream(response, request_id, limit)
        try:
            if _is_followable_redirect(response):
                return httpx2.Response(response.status_code, headers={"location": response.headers["location"]})
            if request_id is None:
                return httpx2.Response(HTTPStatus.ACCEPTED)
            in_session = SESSION_HEADER in request.headers
            if (rejection := _reject_by_status(request, response, in_session=in_session)) is not None:
                return rejection
            if kind == "application/json" and not encoded:
                return await self._check_json(response, request_id, limit, in_session=in_session)
        finally:
            await response.aclose()
        message = f"HTTP {response.status_code}" + (f" and {kind[:64]}" if kind else "")
        return _error_response(
            TransportErrorCode.INVALID_RESPONSE, f"The upstream answered with {message}, which is no MCP answer."
        )

    def _check_event_stream(
        self, response: httpx2.Response, request_id: RequestId | None, limit: int
    ) -> httpx2.Response:
        stream = CheckedEventStream(
            cast("httpx2.AsyncByteStream", response.stream),
            request_id=request_id,
            limit=limit,
            faults=self._faults,
            large_results=self._large_results,
            encode_error=lambda why: jsontext.dumps(make_transport_error(TransportErrorCode.INVALID_RESPONSE, why)),
        )
        headers = [(name, value) for name, value in response.headers.items() if name != "content-length"]
        return httpx2.Response(response.status_code, headers=headers, stream=stream, extensions=response.extensions)

    async def _check_json(
        self, response: httpx2.Response, request_id: RequestId, limit: int, *, in_session: bool
    ) -> httpx2.Response:
        body = await _read_bounded(response, limit)
        if body is None:
            self._faults.increment(Fault.OVERSIZED)
            return _error_response(TransportErrorCode.INVALID_RESPONSE, too_large_message(limit))
        reads = await decode_messages(body)
        read = reads[0] if len(reads) == 1 else UnreadableMessage("is no JSON-RPC message")
        if isinstance(read, UnreadableMessage):
            self._faults.increment(Fault.UNREADABLE)
            return _invalid_response(response)
        if read.repaired_characters:
            self._faults.increment(Fault.REPAIRED)
        match read.message:
            case JSONRPCError(error=error):
                refused = in_session and response.status_code == HTTPStatus.BAD_REQUEST
                if refused and error.code == _UNKNOWN_SESSION_CODE:
                    return _session_not_found()
                # Whatever its status was: the SDK gives an error the id of its request only when the status is one of an error.
                return httpx2.Response(
                    HTTPStatus.BAD_REQUEST,
                    headers=_kept_headers(response),
                    content=_message_bytes(read, body),
                    extensions={MESSAGE: read.message},
                )
            case JSONRPCResponse() as message if response.is_success:
                return self._make_json_response(response, message, request_id, _message_bytes(read, body))
            case _:
                self._faults.increment(Fault.UNREADABLE)
                return _invalid_response(response)

    def _make_json_response(
        self, response: httpx2.Response, message: JSONRPCResponse, request_id: RequestId, body: bytes
    ) -> httpx2.Response:
        if coerce_request_id(message.id) != coerce_request_id(request_id):
            self._faults.increment(Fault.UNMATCHED)
            return _invalid_response(response)
        if len(body) > LARGE_BYTES and self._large_results.put_result(message):
            body = self._large_results.encode_placeholder(message)
        return httpx2.Response(
            HTTPStatus.OK, headers=_kept_headers(response), content=body, extensions={MESSAGE: message}
        )


def _with_read_timeout(request: httpx2.Request) -> httpx2.Request:
    request.extensions["timeout"] = {**request.extensions.get("timeout", {}), "read": NOTIFICATION_TIMEOUT_SECONDS}
    return request


def _parse_request(content: bytes) -> tuple[RequestId | None, str]:
    """The id and method of a JSON-RPC request; no id for a notification or a reply, whose HTTP answer means nothing."""
    message = jsontext.loads(content)
    return (message["id"], message["method"]) if "method" in message and "id" in message else (None, "")


def _content_type(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_event_stream(response: httpx2.Response) -> bool:
    return _content_type(response) == "text/event-stream"


def _is_followable_redirect(response: httpx2.Response) -> bool:
    """A redirect that keeps method and body; the SDK follows it if it stays within the origin."""
    if response.status_code not in {HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT}:
        return False
    try:
        return httpx2.URL(response.headers.get("location", "data:")).scheme in {"", "http", "https"}
    except httpx2.InvalidURL:
        return False


async def _read_bounded(response: httpx2.Response, limit: int) -> bytes | None:
    body = bytearray()
    async for chunk in cast("httpx2.AsyncByteStream", response.stream):
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)


def _message_bytes(read: DecodedMessage, body: bytes) -> bytes:
    return (
        body.strip().removeprefix(BOM)
        if not read.repaired_characters
        else read.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    )


def _invalid_response(response: httpx2.Response) -> httpx2.Response:
    message = f"The upstream answered with HTTP {response.status_code} and JSON that is no MCP answer."
    return _error_response(TransportErrorCode.INVALID_RESPONSE, message)


def _kept_headers(response: httpx2.Response) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    if session := response.headers.get(SESSION_HEADER):
        headers[SESSION_HEADER] = session
    return headers


def _session_not_found() -> httpx2.Response:
    return _error_response(
        TransportErrorCode.SESSION_NOT_FOUND, "The upstream no longer knew the session, so it did not take the request."
    )


def _reject_by_status(
    request: httpx2.Request, response: httpx2.Response, *, in_session: bool
) -> httpx2.Response | None:
    """What a status says of a request that was not taken: the session, or whoever asks, is not known."""
    if in_session and response.status_code == HTTPStatus.NOT_FOUND:
        return _session_not_found()
    if response.status_code != HTTPStatus.UNAUTHORIZED:
        return None
    if _AUTHORIZATION in request.headers:
        return _error_response(
            TransportErrorCode.CREDENTIALS_REJECTED, "The upstream refuses the credentials that are configured for it."
        )
    message = "The upstream wants credentials, and none are configured: a header, or client_credentials."
    return _error_response(TransportErrorCode.CREDENTIALS_REQUIRED, message)


def _error_response(code: TransportErrorCode, message: str) -> httpx2.Response:
    error = make_transport_error(code, message)
    extensions = {MESSAGE: JSONRPCError.model_validate(error)}
    return httpx2.Response(HTTPStatus.SERVICE_UNAVAILABLE, json=error, extensions=extensions)


def make_transport_error(code: TransportErrorCode, message: str) -> dict[str, Any]:
    error = {"code": int(code), "message": message[:_MESSAGE_LENGTH_MAX], "data": TRANSPORT_ERROR_MARKER}
    return {"jsonrpc": "2.0", "id": None, "error": error}
