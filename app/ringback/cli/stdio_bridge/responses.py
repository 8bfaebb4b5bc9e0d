"""The responses of the service.

What a failure says about its request:

    NoResponse       the service may have received it, or has certainly not (`may_have_arrived`); sending it again may help
    SessionUnknown   the service has not processed it, because it does not know the session
    RequestRefused   the service responded with an error; sending it again does not help
"""

from collections.abc import AsyncGenerator, AsyncIterator
from http import HTTPStatus
from typing import Any, Final, cast

import httpx2
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCError, JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError

from ringback.cli.output import strip_control_characters
from ringback.domain import jsontext

RESPONSE_BYTES_MAX: Final = 17 * 1024 * 1024
"""The largest event of the service: the largest stored result (16 MiB) and the JSON-RPC around it."""
DETAIL_LENGTH_MAX: Final = 500
RETRYABLE_STATUSES: Final = frozenset(
    {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
)
"""The service is starting or stopping, or a proxy does not reach it. The request may have been started before that."""


class NoResponse(Exception):
    """The request has no response. The message is a sentence that says why."""

    def __init__(
        self, reason: str, *, may_have_arrived: bool = True, is_lost: bool = False, is_hung: bool = False
    ) -> None:
        super().__init__(reason)
        self.may_have_arrived = may_have_arrived
        self.is_lost = is_lost
        """Whether the connection broke after the request was sent."""
        self.is_hung = is_hung
        """Whether the service runs and responds to nothing; the message says what to do about it."""


class SessionUnknown(Exception):
    """The service does not know the session."""


class RequestRefused(Exception):
    """The service responded with an error."""

    def __init__(self, error: ErrorData) -> None:
        super().__init__(error.message)
        self.error = error


class EndpointResponse:
    """A successful response."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self.session_id: str | None = response.headers.get(MCP_SESSION_ID_HEADER)
        self.last_event_id = ""
        """The id of the latest event, also of one without data; empty before the first."""

    async def read_messages(self) -> AsyncGenerator[JSONRPCMessage]:
        """The messages of the body until it ends; raises `NoResponse` or `RequestRefused`."""
        try:
            if _content_type(self._response) == "text/event-stream":
                async for event in httpx2.EventSource(self._response, max_event_size=RESPONSE_BYTES_MAX):
                    self.last_event_id = event.id
                    if event.event == "message" and event.data:
                        yield _parse_message(event.data)
            elif body := await _read_body(self._response):
                yield _parse_message(body)
        except httpx2.SSEError as error:
            raise RequestRefused(_error(f"The response of Ringback cannot be read: {error}")) from None
        except httpx2.HTTPError as error:
            raise connection_lost(error) from None


def response_ended_early() -> NoResponse:
    return NoResponse("Ringback ended its response early.", is_lost=True)


async def raise_failure(request: httpx2.Request, response: httpx2.Response, *, display_url: str) -> None:
    """Raise what an unsuccessful response says about its request."""
    if response.status_code == HTTPStatus.NOT_FOUND and MCP_SESSION_ID_HEADER in request.headers:
        raise SessionUnknown
    try:
        body = await _read_body(response)
    except httpx2.HTTPError as error:
        raise connection_lost(error) from None
    text, error = _problem_detail(body), _json_rpc_error(body)
    if response.status_code in RETRYABLE_STATUSES:
        raise NoResponse(text or _error_text(error) or f"Ringback responded with HTTP {response.status_code}.")
    if error is not None:
        raise RequestRefused(error)
    where = f" and redirects to {response.headers['location']}" if response.has_redirect_location else ""
    raise RequestRefused(
        _error(text or f"Ringback responded with HTTP {response.status_code}{where}. Is {display_url} its URL?")
    )


def connection_lost(error: httpx2.HTTPError) -> NoResponse:
    return NoResponse(
        f"The connection to Ringback was lost before its response ({type(error).__name__}).", is_lost=True
    )


def _error(message: str) -> ErrorData:
    return ErrorData(code=CONNECTION_CLOSED, message=strip_control_characters(message)[:DETAIL_LENGTH_MAX])


def _content_type(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _read_body(response: httpx2.Response) -> bytes:
    body = bytearray()
    async for chunk in cast("AsyncIterator[bytes]", response.aiter_bytes()):
        body += chunk
        if len(body) > RESPONSE_BYTES_MAX:
            raise httpx2.SSEError(f"it exceeds {RESPONSE_BYTES_MAX} bytes.")
    return bytes(body)


def _parse_message(text: str | bytes) -> JSONRPCMessage:
    try:
        return jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError:
        raise RequestRefused(_error("The response of Ringback is not a JSON-RPC message. Is this its URL?")) from None


def _json_rpc_error(body: bytes) -> ErrorData | None:
    try:
        message = jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValidationError:
        return None
    return message.error if isinstance(message, JSONRPCError) else None


def _error_text(error: ErrorData | None) -> str | None:
    return None if error is None else strip_control_characters(error.message)[:DETAIL_LENGTH_MAX]


def _problem_detail(body: bytes) -> str | None:
    """The detail of a problem document, which an older service and a proxy of the same host send."""
    try:
        document: Any = jsontext.loads(body)
    except ValueError:
        return None
    match document:
        case {"detail": str() as detail}:
            return strip_control_characters(detail)[:DETAIL_LENGTH_MAX]
        case _:
            return None
