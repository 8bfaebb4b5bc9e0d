"""Confines an HTTP failure to its request, and bounds what is read: the SDK's transport would end the whole session.

The response to a request is its own: a server that sends that of another request, or replays it, does not end the call with it.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, cast

import httpx2
from mcp.shared.dispatcher import coerce_request_id
from mcp_types import JSONRPCError, RequestId
from pydantic import ValidationError

from ringback.client.durable.direct.matching_events import MatchingEvents, parse_object
from ringback.protocol.http_failures import (
    error_response,
    invalid_response_code,
    names_unknown_session,
    read_bounded,
    read_failure_response,
    reject_by_status,
    send_failure_response,
    session_not_found_response,
)
from ringback.protocol.sessions import SESSION_HEADER
from ringback.protocol.transport_errors import (
    RESULT_BYTES_MAX,
    TransportErrorCode,
    make_transport_error,
    too_large_message,
)

_TOOL_CALL: Final = "tools/call"
_JSON: Final = "application/json"
CONTENT_TYPE_LENGTH_MAX: Final = 64
"""The characters of a foreign response's type that its error names."""
_LAST_EVENT_ID_HEADER: Final = "last-event-id"
_OF_ANOTHER_REQUEST: Final = "The server sent the response to another request."
_TOO_MANY_REQUESTS: Final = (
    "The server, or a proxy before it, refused the request unread: it has too many requests (HTTP 429)."
)


class ConfiningTransport(httpx2.AsyncBaseTransport):
    """A POST that fails gets a JSON-RPC error as its response; nothing is raised. `keeps_inner`: `inner` stays open."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, *, keeps_inner: bool) -> None:
        self._inner = inner
        self._keeps_inner = keeps_inner
        self.resumed_id: RequestId | None = None
        """The request whose response a GET reads on: the tools/call that was sent, or one of an earlier connection."""

    async def aclose(self) -> None:
        if not self._keeps_inner:
            await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method != "POST":
            response = await self._inner.handle_async_request(request)  # the SDK catches what these raise
            is_resumed = _LAST_EVENT_ID_HEADER in request.headers and _is_event_stream(response)
            # Behind the response to another request, which a server must not replay, this one's may follow.
            return _with_events_of(response, self.resumed_id) if is_resumed else response
        sent_id = self._note_request(parse_object(await request.aread()))
        try:
            response = await self._inner.handle_async_request(request)
        except Exception as error:  # noqa: BLE001 - the boundary: an exception here would end the session
            return send_failure_response(error)
        if _is_event_stream(response):
            return _with_events_of(response, sent_id, replacement=_encode_error_event())
        try:
            return await _check_response(request, response, sent_id)
        except Exception as error:  # noqa: BLE001 - the same boundary, for a body that ends early
            return read_failure_response(error)
        finally:
            await response.aclose()

    def _note_request(self, message: Mapping[str, Any] | None) -> RequestId | None:
        """The id of a request; None for a notification or a response."""
        if message is None or "method" not in message or not isinstance(request_id := message.get("id"), int | str):
            return None
        if message["method"] == _TOOL_CALL:
            self.resumed_id = request_id
        return request_id


def _content_type(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_event_stream(response: httpx2.Response) -> bool:
    return response.is_success and _content_type(response) == "text/event-stream"


def _with_events_of(
    response: httpx2.Response, request_id: RequestId | None, *, replacement: bytes = b""
) -> httpx2.Response:
    if request_id is None:
        return response
    stream = MatchingEvents(cast("httpx2.AsyncByteStream", response.stream), request_id, replacement=replacement)
    headers = [(name, value) for name, value in response.headers.multi_items() if name != "content-length"]
    return httpx2.Response(response.status_code, headers=headers, stream=stream, extensions=response.extensions)


def _encode_error_event() -> bytes:
    error = make_transport_error(TransportErrorCode.INVALID_RESPONSE, _OF_ANOTHER_REQUEST)
    return f"data: {json.dumps(error)}\n\n".encode()


async def _check_response(
    request: httpx2.Request, response: httpx2.Response, sent_id: RequestId | None
) -> httpx2.Response:
    if (rejection := reject_by_status(request, response)) is not None:
        return rejection
    body = await read_bounded(response, RESULT_BYTES_MAX)
    if body is None:
        return error_response(TransportErrorCode.INVALID_RESPONSE, too_large_message(RESULT_BYTES_MAX))
    if names_unknown_session(request, response, body, sent_id):
        return session_not_found_response()
    if sent_id is not None and not response.has_redirect_location and not _is_mcp_response(response, body):
        return _reject_foreign_response(response)
    if response.is_success and await _is_for_another_request(request, body):
        return error_response(TransportErrorCode.INVALID_RESPONSE, _OF_ANOTHER_REQUEST)
    return httpx2.Response(response.status_code, headers=_kept_headers(response), content=body)


def _is_mcp_response(response: httpx2.Response, body: bytes) -> bool:
    """Whether the SDK finds the server's own words in it. For any other it would invent a JSON-RPC error of the server."""
    if _content_type(response) != _JSON:
        return False
    if response.is_success:
        return True  # the SDK says so itself if it cannot parse it
    try:
        JSONRPCError.model_validate_json(body)
    except ValidationError:
        return False
    return True


def _reject_foreign_response(response: httpx2.Response) -> httpx2.Response:
    """For a page of a proxy, or of a server that does not speak MCP at this URL.

    It keeps the page's cookies, with which a load balancer may choose the server of the next requests.
    """
    rejection = _describe_foreign_response(response)
    cookies = [("set-cookie", each) for each in response.headers.get_list("set-cookie")]
    headers = [("content-type", _JSON), *cookies]
    return httpx2.Response(rejection.status_code, headers=headers, content=rejection.content)


def _describe_foreign_response(response: httpx2.Response) -> httpx2.Response:
    if response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
        return error_response(TransportErrorCode.NOT_SENT, _TOO_MANY_REQUESTS)
    kind = _content_type(response)[:CONTENT_TYPE_LENGTH_MAX]
    described = f"HTTP {response.status_code}" + (f" and {kind}" if kind else "")
    return error_response(
        invalid_response_code(response), f"The server answered with {described}, which is no MCP response."
    )


async def _is_for_another_request(request: httpx2.Request, body: bytes) -> bool:
    """Whether a JSON body is no response to this request: the SDK (2.3.0) would wait for the right one for ever."""
    sent, received = parse_object(await request.aread()), parse_object(body)
    if sent is None or "id" not in sent or received is None:
        return False  # the SDK ends a request whose response it cannot parse
    answered = received.get("id")
    return "method" in received or answered is None or coerce_request_id(answered) != coerce_request_id(sent["id"])


def _kept_headers(response: httpx2.Response) -> list[tuple[str, str]]:
    return [
        (name, value)
        for name, value in response.headers.multi_items()
        if name in {"content-type", "location", "set-cookie", SESSION_HEADER}
    ]
