"""Confines an HTTP failure to its request, and bounds what is read: the SDK's transport would end the whole session."""

import json
from typing import Any, cast

import httpx2
from mcp.shared.dispatcher import coerce_request_id

from ringback.protocol.http_failures import (
    error_response,
    names_unknown_session,
    read_bounded,
    read_failure_response,
    reject_by_status,
    send_failure_response,
    session_not_found_response,
)
from ringback.protocol.sessions import SESSION_HEADER
from ringback.protocol.transport_errors import RESULT_BYTES_MAX, TransportErrorCode, too_large_message


class ConfiningTransport(httpx2.AsyncBaseTransport):
    """A POST that fails gets a JSON-RPC error as its response; nothing is raised. `keeps_inner`: `inner` stays open."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, *, keeps_inner: bool) -> None:
        self._inner = inner
        self._keeps_inner = keeps_inner

    async def aclose(self) -> None:
        if not self._keeps_inner:
            await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method != "POST":
            return await self._inner.handle_async_request(request)  # the SDK catches what these raise
        try:
            response = await self._inner.handle_async_request(request)
        except Exception as error:  # noqa: BLE001 - the boundary: an exception here would end the session
            return send_failure_response(error)
        if response.is_success and response.headers.get("content-type", "").startswith("text/event-stream"):
            return response
        try:
            return await _check_response(request, response)
        except Exception as error:  # noqa: BLE001 - the same boundary, for a body that ends early
            return read_failure_response(error)
        finally:
            await response.aclose()


async def _check_response(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    if (rejection := reject_by_status(request, response)) is not None:
        return rejection
    body = await read_bounded(response, RESULT_BYTES_MAX)
    if body is None:
        return error_response(TransportErrorCode.INVALID_RESPONSE, too_large_message(RESULT_BYTES_MAX))
    if names_unknown_session(request, response, body):
        return session_not_found_response()
    if response.is_success and await _is_for_another_request(request, body):
        return error_response(TransportErrorCode.INVALID_RESPONSE, "The server sent the response to another request.")
    return httpx2.Response(response.status_code, headers=_kept_headers(response), content=body)


async def _is_for_another_request(request: httpx2.Request, body: bytes) -> bool:
    """Whether a JSON body is no response to this request: the SDK (2.3.0) would wait for the right one for ever."""
    sent, received = _parse_object(await request.aread()), _parse_object(body)
    if sent is None or "id" not in sent or received is None:
        return False  # the SDK ends a request whose response it cannot parse
    answered = received.get("id")
    return "method" in received or answered is None or coerce_request_id(answered) != coerce_request_id(sent["id"])


def _parse_object(text: bytes) -> dict[str, Any] | None:
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", document) if isinstance(document, dict) else None


def _kept_headers(response: httpx2.Response) -> list[tuple[str, str]]:
    return [
        (name, value)
        for name, value in response.headers.multi_items()
        if name in {"content-type", "location", "set-cookie", SESSION_HEADER}
    ]
