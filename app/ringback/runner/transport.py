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
from ringback.runner.config import UpstreamConfig
from ringback.runner.cookies import CookieTransport
from ringback.runner.event_stream import ReadEvents
from ringback.runner.failures import (
    AuthorizationRequired,
    Forgotten,
    Lost,
    NoAnswer,
    NoToken,
    NotSent,
    Refused,
    RequestFailed,
    SessionGone,
    Unauthorised,
)
from ringback.runner.faults import Fault, Faults
from ringback.runner.http_transport import HttpTransport, ssl_context
from ringback.runner.large_results import LARGE_BYTES, LargeResults
from ringback.runner.reading import BOM, Read, Unreadable, read_messages
from ringback.runner.tokens import Tokens, TokenTransport

RESULT_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest answer that is taken: images and reports fit, and a few hundred at once still fit into memory."""
LIST_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of all pages of a list, and so of one. Ten thousand tools with schemas of a usual size fit, and so do a hundred such
upstreams into memory."""
EVENT_BYTES_MAX: Final = RESULT_BYTES_MAX + 4096
"""An event is a result and the JSON-RPC around it."""
CONNECT_SECONDS: Final = 10.0
"""DNS, TCP and TLS together; a host that needs longer is down."""
WRITE_SECONDS: Final = 60.0
"""An upstream that does not take a request's next bytes for this long does not take them at all."""
COURTESY_SECONDS: Final = 5.0
"""For the answer to a notification or a DELETE. The SDK sends notifications one after the other, in line with requests, so
a silent upstream would otherwise stop every later call."""

MARK: Final = "ringback/transport"
"""`data` of the errors made here."""
MESSAGE: Final = "ringback/message"
"""The extension of a response that holds the JSON-RPC message of its body, already read."""
_NEVER_CONNECTED: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
SESSION_HEADER: Final = "mcp-session-id"
_AUTHORIZATION: Final = "authorization"
_TRANSPORT_REFUSAL: Final = -32000
"""What servers made after the TypeScript SDK's examples answer, with status 400, to a session they do not know."""
_MESSAGE_LENGTH_MAX: Final = 200


class Trouble(IntEnum):
    """Codes of the errors made here, from the range that MCP leaves to implementations (2026-07-28: -32000 to -32019)."""

    NOT_SENT = -32011
    FORGOTTEN = -32012
    LOST = -32013
    NO_ANSWER = -32014
    GONE = -32015
    UNAUTHORISED = -32016
    AUTHORIZATION_REQUIRED = -32017
    NO_TOKEN = -32018


_KINDS: Final[dict[int, Callable[[str], RequestFailed]]] = {
    Trouble.NOT_SENT: NotSent,
    Trouble.FORGOTTEN: Forgotten,
    Trouble.LOST: Lost,
    Trouble.NO_ANSWER: NoAnswer,
    Trouble.GONE: SessionGone,
    Trouble.UNAUTHORISED: Unauthorised,
    Trouble.AUTHORIZATION_REQUIRED: AuthorizationRequired,
    Trouble.NO_TOKEN: NoToken,
}


def failure_of(error: ErrorData) -> RequestFailed:
    """What an error that the SDK reports stands for: one of ours, one that the SDK made up, or the upstream's own."""
    if error.data == MARK and error.code in _KINDS:
        return _KINDS[error.code](error.message)
    if error.code == CONNECTION_CLOSED and error.message.startswith("SSE stream failed"):
        return NoAnswer(f"The upstream's answer is larger than {RESULT_BYTES_MAX} bytes, or no event stream.")
    if error.code == CONNECTION_CLOSED and error.message.startswith(("SSE stream ended", "Connection closed")):
        return Lost("The upstream ended the connection before it answered. The tool may have run.")
    if error.code == PARSE_ERROR and error.message.startswith("Failed to parse"):
        return NoAnswer("The upstream answered with something that is no JSON-RPC message.")
    return Refused(error.model_dump(mode="json", exclude_unset=True))


def too_large(limit: int) -> str:
    return f"The upstream's answer is larger than {limit} bytes."


def guarded(
    config: UpstreamConfig, tokens: Tokens | None, *, look_up: LookUp, faults: Faults, large: LargeResults
) -> "GuardedTransport":
    http = CookieTransport(HttpTransport(ssl_context(config.url), look_up=look_up))
    return GuardedTransport(http if tokens is None else TokenTransport(http, tokens), faults=faults, large=large)


def http_client(
    config: UpstreamConfig, transport: httpx2.AsyncBaseTransport, headers: Mapping[str, str]
) -> httpx2.AsyncClient:
    """A client for one upstream. Nothing that reaches Ringback is forwarded; only these and the configured headers go out."""
    return httpx2.AsyncClient(
        transport=transport,
        headers={"user-agent": f"ringback/{__version__}", **config.headers, **headers, "accept-encoding": "identity"},
        # No read timeout: closing the stream would cancel the tool. The call's own deadline decides.
        timeout=httpx2.Timeout(connect=CONNECT_SECONDS, write=WRITE_SECONDS, read=None, pool=None),
        trust_env=False,
    )


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Raises nothing for a POST, and hands on only what the SDK can make an answer of."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, *, faults: Faults, large: LargeResults) -> None:
        self._inner = inner
        self._faults = faults
        self._large = large

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method != "POST":
            # The SDK contains what the listening GET and the closing DELETE raise.
            response = await self._inner.handle_async_request(
                _hurried(request) if request.method == "DELETE" else request
            )
            return self._looked_through(response, None, EVENT_BYTES_MAX) if _is_event_stream(response) else response
        try:
            request_id, method = _asked(await request.aread())
            response = await self._inner.handle_async_request(request if request_id is not None else _hurried(request))
        except (Unauthorised, NoToken) as failure:
            return _trouble(
                Trouble.UNAUTHORISED if isinstance(failure, Unauthorised) else Trouble.NO_TOKEN, str(failure)
            )
        except _NEVER_CONNECTED as error:
            return _trouble(Trouble.NOT_SENT, f"The upstream could not be connected to ({type(error).__name__}).")
        except Exception as error:  # noqa: BLE001 - the boundary: whatever is raised here would end every call in flight
            return _trouble(Trouble.LOST, f"The connection was lost before an answer came ({type(error).__name__}).")
        try:
            return await self._judge(request, response, request_id, method)
        except Exception as error:  # noqa: BLE001 - the same boundary, for a body that breaks off
            return _trouble(
                Trouble.LOST, f"The connection was lost in the middle of the answer ({type(error).__name__})."
            )

    async def _judge(
        self, request: httpx2.Request, response: httpx2.Response, request_id: RequestId | None, method: str
    ) -> httpx2.Response:
        kind = _kind(response)
        encoded = response.headers.get("content-encoding", "identity") != "identity"
        limit = LIST_BYTES_MAX if method.endswith("/list") else RESULT_BYTES_MAX
        if response.is_success and _is_event_stream(response) and request_id is not None and not encoded:
            return self._looked_through(response, request_id, limit)
        try:
            if _may_be_followed(response):
                return httpx2.Response(response.status_code, headers={"location": response.headers["location"]})
            if request_id is None:
                return httpx2.Response(HTTPStatus.ACCEPTED)
            in_session = SESSION_HEADER in request.headers
            if (refusal := _refused_unread(request, response, in_session=in_session)) is not None:
                return refusal
            if kind == "application/json" and not encoded:
                return await self._judge_json(response, request_id, limit, in_session=in_session)
        finally:
            await response.aclose()
        told = f"HTTP {response.status_code}" + (f" and {kind[:64]}" if kind else "")
        return _trouble(Trouble.NO_ANSWER, f"The upstream answered with {told}, which is no MCP answer.")

    def _looked_through(self, response: httpx2.Response, request_id: RequestId | None, limit: int) -> httpx2.Response:
        stream = ReadEvents(
            cast("httpx2.AsyncByteStream", response.stream),
            request_id=request_id,
            limit=limit,
            faults=self._faults,
            large=self._large,
            error=lambda why: jsontext.dumps(_error(Trouble.NO_ANSWER, why)),
        )
        headers = [(name, value) for name, value in response.headers.items() if name != "content-length"]
        return httpx2.Response(response.status_code, headers=headers, stream=stream, extensions=response.extensions)

    async def _judge_json(
        self, response: httpx2.Response, request_id: RequestId, limit: int, *, in_session: bool
    ) -> httpx2.Response:
        body = await _read(response, limit)
        if body is None:
            self._faults.count(Fault.OVERSIZED)
            return _trouble(Trouble.NO_ANSWER, too_large(limit))
        reads = await read_messages(body)
        read = reads[0] if len(reads) == 1 else Unreadable("is no JSON-RPC message")
        if isinstance(read, Unreadable):
            self._faults.count(Fault.UNREADABLE)
            return _no_answer(response)
        if read.repaired:
            self._faults.count(Fault.REPAIRED)
        match read.message:
            case JSONRPCError(error=error):
                refused = in_session and response.status_code == HTTPStatus.BAD_REQUEST
                if refused and error.code == _TRANSPORT_REFUSAL:
                    return _forgotten()
                # Whatever its status was: the SDK gives an error the id of its request only when the status is one of an error.
                return httpx2.Response(
                    HTTPStatus.BAD_REQUEST,
                    headers=_kept(response),
                    content=_text(read, body),
                    extensions={MESSAGE: read.message},
                )
            case JSONRPCResponse() as message if response.is_success:
                return self._answer(response, message, request_id, _text(read, body))
            case _:
                self._faults.count(Fault.UNREADABLE)
                return _no_answer(response)

    def _answer(
        self, response: httpx2.Response, message: JSONRPCResponse, request_id: RequestId, body: bytes
    ) -> httpx2.Response:
        if coerce_request_id(message.id) != coerce_request_id(request_id):
            self._faults.count(Fault.UNMATCHED)
            return _no_answer(response)
        if len(body) > LARGE_BYTES and self._large.put(message):
            body = self._large.placeholder(message)
        return httpx2.Response(HTTPStatus.OK, headers=_kept(response), content=body, extensions={MESSAGE: message})


def _hurried(request: httpx2.Request) -> httpx2.Request:
    request.extensions["timeout"] = {**request.extensions.get("timeout", {}), "read": COURTESY_SECONDS}
    return request


def _asked(content: bytes) -> tuple[RequestId | None, str]:
    """The id and method of a JSON-RPC request; no id for a notification or a reply, whose HTTP answer means nothing."""
    message = jsontext.loads(content)
    return (message["id"], message["method"]) if "method" in message and "id" in message else (None, "")


def _kind(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_event_stream(response: httpx2.Response) -> bool:
    return _kind(response) == "text/event-stream"


def _may_be_followed(response: httpx2.Response) -> bool:
    """A redirect that keeps method and body; the SDK follows it if it stays within the origin."""
    if response.status_code not in {HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT}:
        return False
    try:
        return httpx2.URL(response.headers.get("location", "data:")).scheme in {"", "http", "https"}
    except httpx2.InvalidURL:
        return False


async def _read(response: httpx2.Response, limit: int) -> bytes | None:
    body = bytearray()
    async for chunk in cast("httpx2.AsyncByteStream", response.stream):
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)


def _text(read: Read, body: bytes) -> bytes:
    return (
        body.strip().removeprefix(BOM)
        if not read.repaired
        else read.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    )


def _no_answer(response: httpx2.Response) -> httpx2.Response:
    told = f"The upstream answered with HTTP {response.status_code} and JSON that is no MCP answer."
    return _trouble(Trouble.NO_ANSWER, told)


def _kept(response: httpx2.Response) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    if session := response.headers.get(SESSION_HEADER):
        headers[SESSION_HEADER] = session
    return headers


def _forgotten() -> httpx2.Response:
    return _trouble(Trouble.FORGOTTEN, "The upstream no longer knew the session, so it did not take the request.")


def _refused_unread(request: httpx2.Request, response: httpx2.Response, *, in_session: bool) -> httpx2.Response | None:
    """What a status says of a request that was not taken: the session, or whoever asks, is not known."""
    if in_session and response.status_code == HTTPStatus.NOT_FOUND:
        return _forgotten()
    if response.status_code != HTTPStatus.UNAUTHORIZED:
        return None
    if _AUTHORIZATION in request.headers:
        return _trouble(Trouble.UNAUTHORISED, "The upstream refuses the credentials that are configured for it.")
    told = "The upstream wants credentials, and none are configured: a header, or client_credentials."
    return _trouble(Trouble.AUTHORIZATION_REQUIRED, told)


def _trouble(trouble: Trouble, message: str) -> httpx2.Response:
    error = _error(trouble, message)
    extensions = {MESSAGE: JSONRPCError.model_validate(error)}
    return httpx2.Response(HTTPStatus.SERVICE_UNAVAILABLE, json=error, extensions=extensions)


def _error(trouble: Trouble, message: str) -> dict[str, Any]:
    error = {"code": int(trouble), "message": message[:_MESSAGE_LENGTH_MAX], "data": MARK}
    return {"jsonrpc": "2.0", "id": None, "error": error}
