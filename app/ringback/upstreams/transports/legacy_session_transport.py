"""HTTP towards an upstream of before 2026-07-28, whose sessions outlive the connections that they are used over.

    SDK transport ──▶ SessionTransport ──▶ GuardedTransport ──▶ upstream
                        learns the session's id        from the answer to `initialize`
                        keeps a DELETE back            while a call is to be found again in that session
                        GET with Last-Event-ID         ends with an error of ours, if it does not end with an answer

The last is for sessions that were rejoined. The SDK's client transport (2.3.0) raises what goes wrong with such a GET, which
ends the whole session, and waits for ever when the stream just ends. An event that says what happened serves both.
"""

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final, cast

import httpx2

from ringback.domain import jsontext
from ringback.upstreams.transports.guarded_http import SESSION_HEADER, TRANSPORT_ERROR_MARKER, TransportErrorCode

SESSION_ID_LENGTH_MAX: Final = 1024
"""A session id is a UUID or a signed token; what is longer is not kept, so its calls cannot be found again."""
_LAST_EVENT_ID_HEADER: Final = "last-event-id"
_SESSION_GONE_STATUSES: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.GONE}
)
"""What servers answer when they do not know the session (404 by the specification, 400 in many), or cannot replay at all."""


class LegacySessionTransport(httpx2.AsyncBaseTransport):
    def __init__(self, inner: httpx2.AsyncBaseTransport, *, rejoined: str | None = None) -> None:
        """`rejoined` is the id of a session that another connection has opened."""
        self._inner = inner
        self._is_rejoined = rejoined is not None
        self.session_id = rejoined
        self.in_session = rejoined is not None
        """Whether the upstream has ever named a session, also one whose id is too long to be kept."""
        self.resumable_calls = 0
        """How many calls are to be found again in this session."""

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE" and (self.resumable_calls or self._is_rejoined):
            return httpx2.Response(HTTPStatus.OK)
        if request.method == "GET" and self._is_rejoined and _LAST_EVENT_ID_HEADER in request.headers:
            return await self._reattach(request)
        response = await self._inner.handle_async_request(request)
        message = response.headers.get(SESSION_HEADER, "")
        self.in_session = self.in_session or bool(message)
        if self.session_id is None and 0 < len(message) <= SESSION_ID_LENGTH_MAX:
            self.session_id = message
        return response

    async def _reattach(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except Exception as error:  # noqa: BLE001 - the boundary: whatever is raised here would end the session
            return _event_response(
                _response_lost_event(f"The upstream could not be asked how far it is ({type(error).__name__}).")
            )
        if response.is_success and response.headers.get("content-type", "").startswith("text/event-stream"):
            stream = cast("httpx2.AsyncByteStream", response.stream)
            return httpx2.Response(
                response.status_code, headers=response.headers, stream=_TerminatedEventStream(stream)
            )
        await response.aclose()
        if response.status_code in _SESSION_GONE_STATUSES:
            message = (
                f"The upstream no longer knows the session that the tool was started in (HTTP {response.status_code})."
            )
            return _event_response(
                _error_event(TransportErrorCode.SESSION_GONE, f"{message} It may have done its work.")
            )
        return _event_response(
            _response_lost_event(f"The upstream answered with HTTP {response.status_code} when asked how far it is.")
        )


class _TerminatedEventStream(httpx2.AsyncByteStream):
    """A stream of events that says so when it ends before the answer came; whoever got its answer reads no further."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        end = b""
        try:
            async for chunk in self._stream:
                yield chunk
                end = (end + chunk)[-4:]
        except Exception:  # noqa: BLE001, S110 - the same boundary, for a stream that breaks off
            pass
        if end and not end.endswith((b"\n\n", b"\r\n\r\n", b"\r\r")):
            # An event that was cut off must not be read together with ours: as one of no known kind it is skipped.
            yield b"\nevent: cut\n\n"
        yield _response_lost_event("The upstream ended the stream before the tool answered.")

    async def aclose(self) -> None:
        await self._stream.aclose()


def _event_response(event: bytes) -> httpx2.Response:
    return httpx2.Response(HTTPStatus.OK, headers={"content-type": "text/event-stream"}, content=event)


def _response_lost_event(message: str) -> bytes:
    return _error_event(TransportErrorCode.RESPONSE_LOST, message)


def _error_event(code: TransportErrorCode, message: str) -> bytes:
    error = {"code": int(code), "message": message, "data": TRANSPORT_ERROR_MARKER}
    return b"data: " + jsontext.dumps({"jsonrpc": "2.0", "id": None, "error": error}) + b"\n\n"
