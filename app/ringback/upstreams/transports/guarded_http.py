"""The HTTP transport of an upstream, which confines a failure to its request.

    SDK transport ──POST──▶ GuardedTransport ──▶ PooledHttpTransport ──▶ upstream
                  ◀── a response, or an error of ours (`TransportErrorCode`) with status 503 ──┘

The SDK's client transport (2.3.0) does not catch exceptions of a POST: they end the session with every call in flight. So this
transport raises nothing and returns a JSON-RPC error instead (`transport_errors`). For the same reason it reads a JSON body
completely, up to a limit: a broken body would raise, and a response to another request would leave its call waiting for ever.
Event streams are checked while they arrive (`event_stream`); the SDK handles a stream that breaks.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final, cast

import anyio
import httpx2
from mcp.shared.dispatcher import coerce_request_id
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse, RequestId

from ringback import __version__
from ringback.domain import jsontext
from ringback.notifier.configured_hosts import LookUp
from ringback.notifier.http.authorities import USUAL_AUTHORITIES, TrustedAuthorities
from ringback.protocol.errors import CredentialsRejected, LoginRequired, ScopeRefused, TokenReplaced, TokenUnavailable
from ringback.protocol.http_failures import (
    CONNECT_TIMEOUT_SECONDS,
    MESSAGE,
    REFUSAL_BYTES_MAX,
    SESSION_DOUBTED,
    WRITE_TIMEOUT_SECONDS,
    doubts_session,
    error_response,
    find_refusal,
    invalid_response_code,
    login_required_response,
    read_bounded,
    read_failure_response,
    reject_by_status,
    send_failure_response,
)
from ringback.protocol.sessions import SESSION_HEADER
from ringback.protocol.transport_errors import (
    EVENT_BYTES_MAX,
    LIST_BYTES_MAX,
    RESULT_BYTES_MAX,
    TransportErrorCode,
    too_large_message,
)
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.dispatch_records import DISPATCH_RECORD, get_dispatch_record
from ringback.upstreams.faults import Fault, FaultCounter
from ringback.upstreams.message_flow import encode_refusal
from ringback.upstreams.oauth.bearer_transport import BearerTokenTransport
from ringback.upstreams.oauth.token_source import TokenSource
from ringback.upstreams.transports.cookies import CookieTransport
from ringback.upstreams.transports.event_parts import cancelled_response
from ringback.upstreams.transports.event_stream import CheckedEventStream
from ringback.upstreams.transports.http_pool import PooledHttpTransport, ssl_context
from ringback.upstreams.transports.large_results import LARGE_BYTES, LargeResults
from ringback.upstreams.transports.message_decoder import (
    BOM,
    DecodedMessage,
    UndecodedMessage,
    decode_messages,
    is_batch,
)
from ringback.upstreams.transports.open_response import OpenResponse, get_open_response
from ringback.upstreams.transports.own_streams import UpstreamOwnStream
from ringback.upstreams.transports.paced_streams import PacedStreams
from ringback.upstreams.transports.throttled_calls import ThrottledCallTransport

NOTIFICATION_TIMEOUT_SECONDS: Final = 5.0
"""For the response to a notification or a DELETE. The SDK sends notifications in order with requests, so a silent upstream
would otherwise block every later call."""

DIRECT_REQUEST: Final = "ringback/direct_request"
"""The request extension with the id and method of a request that is not the SDK's. It gets messages as `MESSAGE` alone, without
a body."""
_CODE_BY_ERROR: Final[Mapping[type[Exception], TransportErrorCode]] = {
    CredentialsRejected: TransportErrorCode.CREDENTIALS_REJECTED,
    ScopeRefused: TransportErrorCode.SCOPE_REFUSED,
    TokenUnavailable: TransportErrorCode.TOKEN_UNAVAILABLE,
    TokenReplaced: TransportErrorCode.TOKEN_REPLACED,
}
_BODY_HEADERS: Final = frozenset({"content-length", "transfer-encoding", "content-type", "accept", "last-event-id"})
REFUSAL_SECONDS_MAX: Final = 1.0
"""For sending the refusal of a request. The stream is not read meanwhile."""
_JSON: Final = "application/json"
_TOOL_CALL: Final = "tools/call"
_LAST_EVENT_ID_HEADER: Final = "last-event-id"
_NO_BODY: Final = httpx2.ByteStream(b"")


def make_guarded_transport(
    config: UpstreamConfig,
    tokens: TokenSource | None,
    *,
    look_up: LookUp,
    authorities: TrustedAuthorities = USUAL_AUTHORITIES,
    faults: FaultCounter,
    large_results: LargeResults,
    paced_streams: PacedStreams | None = None,
) -> "GuardedTransport":
    http = CookieTransport(PooledHttpTransport(ssl_context(config.url, authorities), look_up=look_up))
    authorized = http if tokens is None else BearerTokenTransport(http, tokens, url=config.url)
    return GuardedTransport(
        ThrottledCallTransport(authorized, clock=faults.flow.clock),
        faults=faults,
        large_results=large_results,
        paced_streams=paced_streams,
    )


def make_http_client(
    config: UpstreamConfig, transport: httpx2.AsyncBaseTransport, headers: Mapping[str, str]
) -> httpx2.AsyncClient:
    """Make a client for one upstream. It sends only these and the configured headers, never those of incoming requests."""
    return httpx2.AsyncClient(
        transport=transport,
        headers={"user-agent": f"ringback/{__version__}", **config.headers, **headers, "accept-encoding": "identity"},
        # No read timeout, because closing the stream would cancel the tool. The deadline of the call applies.
        timeout=httpx2.Timeout(connect=CONNECT_TIMEOUT_SECONDS, write=WRITE_TIMEOUT_SECONDS, read=None, pool=None),
        trust_env=False,
    )


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Raises nothing for a POST, and returns only responses that the SDK can process."""

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        *,
        faults: FaultCounter,
        large_results: LargeResults,
        paced_streams: PacedStreams | None = None,
    ) -> None:
        self._inner = inner
        self._faults = faults
        self._large_results = large_results
        self._paced_streams = paced_streams or PacedStreams()
        self._own_stream = UpstreamOwnStream(faults.flow.clock)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if DIRECT_REQUEST in request.extensions:  # cancelled with its caller
            return await self._post(request, *request.extensions[DIRECT_REQUEST])
        if request.method == "POST":
            request_id, method = _parse_request(await request.aread())
            open_response = None if request_id is None else get_open_response()
            send = partial(self._post, request, request_id, method)
        else:
            open_response = _find_resumed_response(request)
            send = partial(self._send_without_message, request)
        if open_response is None:
            return await send()
        if not open_response.is_closed:
            with anyio.CancelScope() as scope, open_response.closing_with(scope):
                return await send()
        return cancelled_response()

    async def _send_without_message(self, request: httpx2.Request) -> httpx2.Response:
        """Send a GET or the closing DELETE. The SDK catches their exceptions."""
        if request.method == "DELETE":
            return await self._inner.handle_async_request(_with_read_timeout(request))
        send = partial(self._inner.handle_async_request, request)
        open_response = _find_resumed_response(request)
        response = await (self._own_stream.open(send) if open_response is None else send())
        if not _is_event_stream(response):
            return response
        checked = self._check_event_stream(request, response, None, EVENT_BYTES_MAX, open_response)
        if open_response is None:
            checked.stream = self._own_stream.follow(cast("httpx2.AsyncByteStream", checked.stream))
        return checked

    async def _post(self, request: httpx2.Request, request_id: RequestId | None, method: str) -> httpx2.Response:
        try:
            if method == _TOOL_CALL:
                request.extensions[DISPATCH_RECORD] = get_dispatch_record()
            response = await self._inner.handle_async_request(
                request if request_id is not None else _with_read_timeout(request)
            )
        except LoginRequired as failure:
            return login_required_response(failure)
        except (CredentialsRejected, TokenUnavailable) as failure:
            return error_response(_CODE_BY_ERROR[type(failure)], str(failure))
        except Exception as error:  # noqa: BLE001 - the boundary: an exception here would end every call in flight
            return send_failure_response(error)
        try:
            return await self._check_response(request, response, request_id, method)
        except Exception as error:  # noqa: BLE001 - the same boundary, for a body that ends early
            return read_failure_response(error)

    async def _check_response(
        self, request: httpx2.Request, response: httpx2.Response, request_id: RequestId | None, method: str
    ) -> httpx2.Response:
        kind = _content_type(response)
        encoding = response.headers.get("content-encoding", "identity")
        encoded = encoding != "identity"
        limit = LIST_BYTES_MAX if method.endswith("/list") else RESULT_BYTES_MAX
        if response.is_success and _is_event_stream(response) and request_id is not None and not encoded:
            return self._check_event_stream(request, response, request_id, limit, get_open_response())
        try:
            if _is_followable_redirect(response):
                return httpx2.Response(response.status_code, headers={"location": response.headers["location"]})
            if request_id is None:
                return httpx2.Response(HTTPStatus.ACCEPTED)
            if (rejection := await _find_rejection(request, response, method, request_id)) is not None:
                return rejection
            if kind == _JSON and not encoded:
                return await self._check_json(request, response, request_id, method, limit)
        finally:
            await response.aclose()
        message = f"HTTP {response.status_code}" + (f" and {kind[:64]}" if kind else "")
        if encoded:
            message += f", content-encoding {encoding[:64]}, though its request accepts none"
        return error_response(
            invalid_response_code(response), f"The upstream answered with {message}, which is no MCP answer."
        )

    def _check_event_stream(
        self,
        request: httpx2.Request,
        response: httpx2.Response,
        request_id: RequestId | None,
        limit: int,
        open_response: OpenResponse | None,
    ) -> httpx2.Response:
        stream = CheckedEventStream(
            cast("httpx2.AsyncByteStream", response.stream),
            request_id=request_id,
            limit=limit,
            faults=self._faults,
            large_results=self._large_results,
            paced_streams=self._paced_streams,
            open_response=open_response,
            refuse_request=partial(self._refuse_request, request),
        )
        headers = [(name, value) for name, value in response.headers.items() if name != "content-length"]
        return httpx2.Response(response.status_code, headers=headers, stream=stream, extensions=response.extensions)

    async def _refuse_request(self, request: httpx2.Request, refused_id: RequestId) -> bool:
        """Send the error to the server, on whose stream of `request` the refused one came. False if it takes none."""
        headers = {name: value for name, value in request.headers.items() if name not in _BODY_HEADERS}
        headers |= {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        timeouts = {"timeout": request.extensions.get("timeout", {})}
        refusal = httpx2.Request(
            "POST", request.url, headers=headers, content=encode_refusal(refused_id), extensions=timeouts
        )
        try:
            async with asyncio.timeout(REFUSAL_SECONDS_MAX):
                response = await self._inner.handle_async_request(_with_read_timeout(refusal))
                await response.aclose()
        except Exception:  # noqa: BLE001 - the stream goes on, and its call may still get the result
            return False
        return True

    async def _check_json(
        self, request: httpx2.Request, response: httpx2.Response, request_id: RequestId, method: str, limit: int
    ) -> httpx2.Response:
        body = await read_bounded(response, limit)
        if body is None:
            self._faults.increment(Fault.OVERSIZED)
            return error_response(TransportErrorCode.INVALID_RESPONSE, too_large_message(limit))
        decoded = await decode_messages(body)
        read = _find_response(decoded, request_id)
        if isinstance(read, UndecodedMessage):
            return find_refusal(request, response, method, body, request_id) or self._refuse_unreadable(response)
        if read.repaired_characters:
            self._faults.increment(Fault.REPAIRED)
        match read.message:
            case JSONRPCError(error=error):
                if (refusal := find_refusal(request, response, method, body, request_id)) is not None:
                    return refusal
                doubts = doubts_session(request, response, method, error)
                # The SDK assigns the request id to an error only with an error status, so the original status is replaced.
                return httpx2.Response(
                    HTTPStatus.BAD_REQUEST,
                    headers=_kept_headers(response),
                    content=_message_bytes(read, body),
                    extensions={MESSAGE: read.message, SESSION_DOUBTED: doubts},
                )
            case JSONRPCResponse() as message if response.is_success and _is_response_to(message, request_id):
                content = None if DIRECT_REQUEST in request.extensions else _message_bytes(read, body)
                return self._make_json_response(response, message, content)
            case message:
                is_unmatched = isinstance(message, JSONRPCResponse) and response.is_success
                self._faults.increment(Fault.UNMATCHED if is_unmatched else Fault.UNREADABLE)
                return _invalid_response(response)

    def _refuse_unreadable(self, response: httpx2.Response) -> httpx2.Response:
        self._faults.increment(Fault.UNREADABLE)
        return _invalid_response(response)

    def _make_json_response(
        self, response: httpx2.Response, message: JSONRPCResponse, body: bytes | None
    ) -> httpx2.Response:
        if body is None:
            headers = _kept_headers(response) if SESSION_HEADER in response.headers else None
            return httpx2.Response(HTTPStatus.OK, headers=headers, stream=_NO_BODY, extensions={MESSAGE: message})
        if len(body) > LARGE_BYTES and self._large_results.put_result(message):
            body = self._large_results.encode_placeholder(message)
        return httpx2.Response(
            HTTPStatus.OK, headers=_kept_headers(response), content=body, extensions={MESSAGE: message}
        )


async def _find_rejection(
    request: httpx2.Request, response: httpx2.Response, method: str, request_id: RequestId
) -> httpx2.Response | None:
    """The response for one that rejects the session, its protocol or the credentials without JSON; None for others."""
    if (rejection := reject_by_status(request, response)) is not None:
        return rejection
    if response.status_code != HTTPStatus.BAD_REQUEST or _content_type(response) == _JSON:
        return None
    body = await read_bounded(response, REFUSAL_BYTES_MAX)
    return None if body is None else find_refusal(request, response, method, body, request_id)


def _with_read_timeout(request: httpx2.Request) -> httpx2.Request:
    request.extensions["timeout"] = {**request.extensions.get("timeout", {}), "read": NOTIFICATION_TIMEOUT_SECONDS}
    return request


def _find_resumed_response(request: httpx2.Request) -> OpenResponse | None:
    """The response that the SDK reads on; None for the stream of messages outside requests."""
    return get_open_response() if _LAST_EVENT_ID_HEADER in request.headers else None


def _parse_request(content: bytes) -> tuple[RequestId | None, str]:
    """The id and method of a JSON-RPC request; no id for a notification or a response, whose HTTP response has no meaning."""
    message = jsontext.loads(content)
    return (message["id"], message["method"]) if "method" in message and "id" in message else (None, "")


def _content_type(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_event_stream(response: httpx2.Response) -> bool:
    return _content_type(response) == "text/event-stream"


def _is_followable_redirect(response: httpx2.Response) -> bool:
    """Whether the redirect keeps method and body; the SDK follows it within the origin."""
    if response.status_code not in {HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT}:
        return False
    try:
        return httpx2.URL(response.headers.get("location", "data:")).scheme in {"", "http", "https"}
    except httpx2.InvalidURL:
        return False


def _message_bytes(read: DecodedMessage, body: bytes) -> bytes:
    return (
        body.strip().removeprefix(BOM)
        if not (read.repaired_characters or is_batch(body))
        else read.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    )


def _find_response(
    messages: Sequence[DecodedMessage | UndecodedMessage], request_id: RequestId
) -> DecodedMessage | UndecodedMessage:
    """The only message of a body; or, of a batch (2025-03-26), the first response to this request."""
    if len(messages) == 1:
        return messages[0]
    for each in messages:
        if isinstance(each, DecodedMessage) and _has_id(each.message, request_id):
            return each
    return UndecodedMessage("is no JSON-RPC message")


def _has_id(message: JSONRPCMessage, request_id: RequestId) -> bool:
    match message:
        case JSONRPCResponse(id=int() | str() as own_id) | JSONRPCError(id=int() | str() as own_id):
            return coerce_request_id(own_id) == coerce_request_id(request_id)
        case _:
            return False


def _is_response_to(message: JSONRPCResponse, request_id: RequestId) -> bool:
    return coerce_request_id(message.id) == coerce_request_id(request_id)


def _invalid_response(response: httpx2.Response) -> httpx2.Response:
    message = f"The upstream answered with HTTP {response.status_code} and JSON that is no MCP answer."
    return error_response(invalid_response_code(response), message)


def _kept_headers(response: httpx2.Response) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    if session := response.headers.get(SESSION_HEADER):
        headers[SESSION_HEADER] = session
    return headers
