"""The HTTP transport of a legacy upstream, whose sessions outlive connections.

    SDK transport ──▶ LegacySessionTransport ──▶ the transport that sends requests ──▶ upstream
                        learns the session id        from the response to `initialize`
                        suppresses DELETE            while a call will be resumed in the session
                        GET with Last-Event-ID       ends with an error event if it ends without a response
        `retry` of such a stream     says when to read it again

The last two are for rejoined sessions. The SDK's client transport (2.3.0) raises errors of such a GET, which ends the whole
session, and waits for ever when the stream just ends. The error event prevents both. Nor does the SDK say which `retry` came.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, cast

import httpx2

from ringback.protocol.errors import LoginRequired
from ringback.protocol.http_failures import SESSION_DOUBTED
from ringback.protocol.sessions import SESSION_HEADER
from ringback.protocol.transport_errors import TransportErrorCode, make_login_error, make_transport_error

SESSION_ID_LENGTH_MAX: Final = 1024
"""A session id is a UUID or a signed token. A longer one is not kept, so its calls cannot be resumed."""
RETRY_SECONDS_MAX: Final = 24 * 60 * 60.0
"""A server may ask its clients to come back after minutes; more than a day is a mistake."""
_RETRY: Final = re.compile(rb"retry: ?([0-9]{1,12})[\r\n]")
_RETRY_BYTES_MAX: Final = 24
"""Of the end of a chunk, in which such a line may begin."""
_LAST_EVENT_ID_HEADER: Final = "last-event-id"
_SESSION_GONE_STATUSES: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.GONE}
)
"""Statuses of servers that do not know the session (404 by the specification, often 400) or cannot replay events."""


class LegacySessionTransport(httpx2.AsyncBaseTransport):
    def __init__(self, inner: httpx2.AsyncBaseTransport, *, rejoined: str | None = None) -> None:
        """`rejoined` is the id of a session that another connection opened."""
        self._inner = inner
        self._is_rejoined = rejoined is not None
        self.session_id = rejoined
        self.in_session = rejoined is not None
        """Whether the upstream has sent a session id, also one that is too long to keep."""
        self.resumable_calls = 0
        """The number of calls that may be resumed in this session."""
        self.is_doubted = False
        """Whether a status of the upstream says that it does not know the session, in an answer to a request.

        A later response with the status 200 in the session says that it does."""
        self.retry_seconds = 0.0
        """How long the upstream asks its clients to wait before they read a stream on (2025-11-25: a MUST)."""
        self.reads_stream_on = False
        """Whether the upstream has begun to send what came after an event, so that it knows the rejoined session."""
        self._streamed: asyncio.Event | None = None
        self.listening = asyncio.Event()
        """Set once the upstream has answered the GET for messages outside requests, or has refused it."""

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def wait_until_streamed(self) -> None:
        """Wait until the next response to a POST that is an event stream begins."""
        self._streamed = asyncio.Event()
        await self._streamed.wait()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE" and (self.resumable_calls or self._is_rejoined):
            return httpx2.Response(HTTPStatus.OK)
        if request.method == "GET" and self._is_rejoined and _LAST_EVENT_ID_HEADER in request.headers:
            return await self._reattach(request)
        try:
            response = await self._inner.handle_async_request(request)
        finally:
            if request.method == "GET":
                self.listening.set()
        if response.extensions.get(SESSION_DOUBTED, False):
            self.is_doubted = True
        elif response.status_code == HTTPStatus.OK and SESSION_HEADER in request.headers:
            self.is_doubted = False
        if response.is_success and not self._is_rejoined and SESSION_HEADER not in request.headers:
            self._learn_session_id(response.headers.get(SESSION_HEADER, ""))
        if self._streamed is not None and request.method == "POST" and _is_event_stream(response):
            self._streamed.set()
        return response

    def _learn_session_id(self, session_id: str) -> None:
        """Keep the id in the response to `initialize`, the last request without a session.

        A server may open a session for the probe of the modern era before it, too, and refuse the probe (the SDK's 1.x do).
        """
        self.in_session = bool(session_id)
        self.session_id = session_id if 0 < len(session_id) <= SESSION_ID_LENGTH_MAX else None

    async def _reattach(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except LoginRequired as failure:
            return _event_response(_encode_event(make_login_error(failure)))
        except Exception as error:  # noqa: BLE001 - the boundary: an exception here would end the session
            return _event_response(
                _response_lost_event(f"The upstream could not be asked how far it is ({type(error).__name__}).")
            )
        if _is_event_stream(response):
            self.reads_stream_on = True
            stream = cast("httpx2.AsyncByteStream", response.stream)
            return httpx2.Response(
                response.status_code,
                headers=response.headers,
                stream=_TerminatedEventStream(stream, on_retry=self._note_retry),
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

    def _note_retry(self, milliseconds: int) -> None:
        self.retry_seconds = min(milliseconds / 1000, RETRY_SECONDS_MAX)


def _is_event_stream(response: httpx2.Response) -> bool:
    return response.is_success and response.headers.get("content-type", "").startswith("text/event-stream")


class _TerminatedEventStream(httpx2.AsyncByteStream):
    """Adds an error event at the end of a stream. A reader that already has its response does not read it."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, on_retry: Callable[[int], None]) -> None:
        self._stream = stream
        self._on_retry = on_retry

    async def __aiter__(self) -> AsyncIterator[bytes]:
        end = b""
        try:
            async for chunk in self._stream:
                self._read_retry(end + chunk)
                yield chunk
                end = (end + chunk)[-_RETRY_BYTES_MAX:]
        except Exception:  # noqa: BLE001, S110 - the same boundary, for a stream that ends early
            pass
        if end and not end.endswith((b"\n\n", b"\r\n\r\n", b"\r\r")):
            # Ends an incomplete event with an unknown type, so that the reader skips it and does not merge it with ours.
            yield b"\nevent: cut\n\n"
        yield _response_lost_event("The upstream ended the stream before the tool answered.")

    def _read_retry(self, text: bytes) -> None:
        for found in _RETRY.finditer(text):
            if text[max(0, found.start() - 1) : found.start()] in {b"", b"\n", b"\r"}:
                self._on_retry(int(found[1]))

    async def aclose(self) -> None:
        await self._stream.aclose()


def _event_response(event: bytes) -> httpx2.Response:
    return httpx2.Response(HTTPStatus.OK, headers={"content-type": "text/event-stream"}, content=event)


def _response_lost_event(message: str) -> bytes:
    return _error_event(TransportErrorCode.RESPONSE_LOST, message)


def _error_event(code: TransportErrorCode, message: str) -> bytes:
    return _encode_event(make_transport_error(code, message))


def _encode_event(error: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(error).encode() + b"\n\n"
