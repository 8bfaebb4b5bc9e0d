"""uvicorn's protocol on llhttp, with limits. One object for each connection.

Received data is parsed in slices, because llhttp's binding reports a header only when it is complete. The protocol counts the
bytes of slices after which the parser reported nothing, and rejects too many of them before the parser has buffered them. When
a parser callback finds a limit exceeded, it stores the error and raises to end the parsing; the response is written after the
parser has returned.

Responses keep their order: while an earlier request of the connection is unanswered, a rejection only stops the reading, and
the connection is closed after the earlier response.
"""

import asyncio
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from ringback.domain.errors import RingbackError
from ringback.http_server.connections import ConnectionLimiter
from ringback.http_server.error_responses import (
    MALFORMED_REQUEST,
    REQUEST_TOO_SLOW,
    TOO_MANY_CONNECTIONS,
    encode_error_response,
    headers_too_large_error,
    url_too_long_error,
)
from ringback.http_server.flow_control import CountingTransport, StoppableFlowControl
from ringback.http_server.framing import framing_header_lines, is_unambiguous
from ringback.http_server.limits import ConnectionPhase
from ringback.services.limits.unread_responses import IS_CONNECTED

PARSE_SLICE_BYTES: Final = 16 * 1024
"""Bytes parsed at once. A limit may be exceeded by this much before it is noticed."""
_HEADER_OVERHEAD_BYTES: Final = 4
"""The colon and the space after a header's name, and the line end."""


class _ParsingStopped(Exception):
    """Raised in a parser callback to stop the parser; the protocol has stored the reason."""


class BoundedHttpProtocol(HttpToolsProtocol):
    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connections: ConnectionLimiter,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.peer: str | None = None
        self._connection_limiter = connections
        self._limits = connections.limits
        self._phase: ConnectionPhase | None = None
        self._active_request: RequestResponseCycle | None = None
        """The request whose application runs or ran last."""
        self._last_request: RequestResponseCycle | None = None
        """The last request whose headers are complete: the active one, or the newest in the pipeline."""
        self._error: RingbackError | None = None
        self._is_reading_headers = False
        """A request has begun and its headers are incomplete."""
        self._is_reading_body = False
        self._is_replay = False
        """A new parser receives headers that were parsed before."""
        self._has_parser_progress = False
        """The parser has called back since the last slice began."""
        self._buffered_bytes = 0
        """What the parser holds of an incomplete element."""
        self._url_bytes = self._headers_bytes = self._headers = 0
        self._body_bytes = self._body_bytes_at_phase_start = 0

    # -- the connection ----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._counting_transport = CountingTransport(transport)
        super().connection_made(self._counting_transport)
        self.flow = self._flow = StoppableFlowControl(self._counting_transport)
        self.peer = self._limits.peer_key(self.client[0]) if self.client else None
        connections = self._connection_limiter
        if connections.add_connection(self):
            self._enter_phase(ConnectionPhase.HEADERS)
        else:
            connections.count_rejection("too_many_connections")
            self._write_error(TOO_MANY_CONNECTIONS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Disconnect the active request too: uvicorn disconnects only the newest one."""
        self._enter_phase(None)
        self._connection_limiter.remove_connection(self)
        self.pipeline.clear()
        if self._active_request is not None and not self._active_request.response_complete:
            self._active_request.disconnected = True
            self._active_request.message_event.set()
        super().connection_lost(exc)
        self._active_request = self._last_request = None

    def data_received(self, data: bytes) -> None:
        if self._flow.is_stopped or self.transport.is_closing():
            return
        if not self._is_reading_body:
            self._is_reading_headers = True
        for offset in range(0, len(data), PARSE_SLICE_BYTES):
            self._parse_slice(data[offset : offset + PARSE_SLICE_BYTES])
            if self._flow.is_stopped:
                return
        self._update_phase()

    def _parse_slice(self, data: bytes) -> None:
        self._has_parser_progress = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._reject_request(self._error or MALFORMED_REQUEST)
        else:
            self._buffered_bytes = 0 if self._has_parser_progress else self._buffered_bytes + len(data)
            if self._headers_bytes + self._buffered_bytes > self._limits.headers_bytes_max:
                self._reject_request(self._headers_too_large_error())

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Ignore an Upgrade header (RFC 9110 §7.8). The bytes after it are the body or the next request.

        llhttp's binding takes them for the other protocol, so a new parser reads them, after the headers that frame the body.
        Java's HTTP client sends Upgrade with its first request.
        """
        self.parser = httptools.HttpRequestParser(self)
        if self._is_reading_body:
            self._is_replay = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % framing_header_lines(self.headers))
            self._is_replay = False
        elif rest:
            self._is_reading_headers = True
        if rest:
            self._parse_slice(rest)

    # -- parser callbacks: an exception ends the parsing -------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._is_replay:
            return
        self._has_parser_progress = self._is_reading_headers = True
        last = self._last_request
        if last is not None and (not last.keep_alive or len(self.pipeline) >= self._limits.pipelined_max):
            self._connection_limiter.count_rejection(
                "too_many_pipelined" if last.keep_alive else "request_after_the_last"
            )
            self._stop_reading()
            raise _ParsingStopped
        self._url_bytes = self._headers_bytes = self._headers = 0
        self._body_bytes = self._body_bytes_at_phase_start = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._is_replay:
            return
        self._has_parser_progress = True
        self._url_bytes += len(url)
        if self._url_bytes > self._limits.url_bytes_max:
            self._stop_parsing(url_too_long_error(self._limits.url_bytes_max))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Trailers of a body count as headers, and are dropped: the application could not distinguish them from headers."""
        if self._is_replay:
            return
        self._has_parser_progress = True
        self._headers += 1
        self._headers_bytes += len(name) + len(value) + _HEADER_OVERHEAD_BYTES
        if self._headers > self._limits.headers_max or self._headers_bytes > self._limits.headers_bytes_max:
            self._stop_parsing(self._headers_too_large_error())
        if self._is_reading_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_replay:
            return
        self._has_parser_progress = True
        if not is_unambiguous(self.parser.get_http_version(), self.headers):
            self._stop_parsing(MALFORMED_REQUEST)
        super().on_headers_complete()
        self._last_request = self.cycle
        if not self.pipeline:  # otherwise the request is in the pipeline
            self._active_request = self.cycle
        self._is_reading_headers, self._is_reading_body = False, True

    def on_body(self, body: bytes) -> None:
        self._has_parser_progress = True
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._has_parser_progress = True
        if self.parser.should_upgrade() and framing_header_lines(self.headers):
            return  # another parser reads its body
        self._is_reading_body = False
        super().on_message_complete()

    def _headers_too_large_error(self) -> RingbackError:
        return headers_too_large_error(self._limits.headers_bytes_max, self._limits.headers_max)

    def _stop_parsing(self, error: RingbackError) -> None:
        self._error = error
        raise _ParsingStopped

    # -- requests and responses --------------------------------------------------------------------------------------------

    def _start_next_request(self) -> None:
        """Start the oldest request in the pipeline."""
        self._active_request, app = self.pipeline.pop()
        self._start_asgi_task(self._active_request, app)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Not at once if many requests arrive together (`loop_turns`)."""
        cycle.scope.setdefault("state", {})[IS_CONNECTED] = _connection_check(cycle)
        start = partial(super()._start_asgi_task, cycle, app)
        self._connection_limiter.run_in_turn(
            self.peer, cycle.scope["method"], lambda: False if cycle.disconnected else start()
        )

    def on_response_complete(self) -> None:
        """Replaces uvicorn's method, which starts a timer for each connection."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._start_next_request()
        if not self.pipeline:
            self.flow.resume_reading()
        if (
            self._is_reading_body
            and self.expect_100_continue
            and not self._body_bytes
            and not self._has_active_request()
        ):
            self.transport.close()  # the next bytes may be the body, or a new request of a client that sends no body
        self._update_phase()

    def _has_active_request(self) -> bool:
        return self._active_request is not None and not self._active_request.response_complete

    def _reject_request(self, error: RingbackError) -> None:
        """Respond with this error to the request that is being read, unless an earlier one is unanswered; stop reading."""
        if self._flow.is_stopped:
            return
        self._connection_limiter.count_rejection(error.slug.replace("-", "_"))
        if not self._is_reading_body:
            self._stop_reading() if self._has_active_request() else self._write_error(error)
        elif self._active_request is self._last_request:
            self._abort_active_request(error)
        else:
            self.pipeline.popleft()
            self._last_request = self.pipeline[0][0] if self.pipeline else self._active_request
            self._stop_reading()

    def _abort_active_request(self, error: RingbackError) -> None:
        """End the active request, whose body is unreadable: its application sees the client disconnect."""
        running = self._active_request
        answerable = running is not None and not running.response_started
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
            self.flow.resume_writing()
        if answerable:
            self._write_error(error)
        else:
            self._stop_reading()
            self.transport.close()

    def _write_error(self, error: RingbackError) -> None:
        self._stop_reading()
        self.transport.write(encode_error_response(error, self.server_state.default_headers))
        self.transport.close()

    def _stop_reading(self) -> None:
        """Read nothing more. The connection is closed after the response to the last request."""
        self._enter_phase(None)
        self._flow.stop_reading()
        if self._last_request is not None:
            self._last_request.keep_alive = False

    # -- time --------------------------------------------------------------------------------------------------------------

    def _update_phase(self) -> None:
        """Enter the connection's current phase. Bytes of headers do not restart the phase's time."""
        serving = self._has_active_request()
        if self._flow.is_stopped or self.transport.is_closing():
            self._enter_phase(None)
        elif self._is_reading_headers:
            self._enter_new_phase(ConnectionPhase.HEADERS)
        elif self._is_reading_body and not serving:
            self._enter_new_phase(ConnectionPhase.REST_OF_BODY)
        elif self._is_reading_body:
            self._enter_body_phase()
        else:
            self._enter_phase(None if serving else ConnectionPhase.NEXT_REQUEST)

    def _enter_body_phase(self) -> None:
        if (
            self._phase is ConnectionPhase.BODY
            and self._body_bytes - self._body_bytes_at_phase_start < self._limits.progress_bytes
        ):
            return
        self._body_bytes_at_phase_start = self._body_bytes
        self._enter_phase(ConnectionPhase.BODY)

    def _enter_new_phase(self, phase: ConnectionPhase) -> None:
        if self._phase is not phase:
            self._enter_phase(phase)

    def _enter_phase(self, phase: ConnectionPhase | None) -> None:
        if self._phase is not None and self._phase is not phase:
            self._connection_limiter.leave_phase(self, self._phase)
        self._phase = phase
        if phase is not None:
            self._connection_limiter.enter_phase(self, phase)

    def on_phase_timeout(self, phase: ConnectionPhase) -> None:
        self._phase = None
        if phase is ConnectionPhase.BODY and self._is_body_paused_by_application():
            self._enter_phase(ConnectionPhase.BODY)
        elif phase is ConnectionPhase.BODY or (phase is ConnectionPhase.HEADERS and self._is_reading_headers):
            self._reject_request(REQUEST_TOO_SLOW)
        else:
            self._connection_limiter.count_rejection(f"idle_{phase.name.lower()}")
            self.transport.close()

    def _is_body_paused_by_application(self) -> bool:
        """Whether the application has not requested the body, or more of it."""
        return self.flow.read_paused or (self._last_request is not None and self._last_request.waiting_for_100_continue)

    # -- for the sweep -----------------------------------------------------------------------------------------------------

    def unread_bytes(self) -> int:
        return self._counting_transport.get_write_buffer_size()

    def read_bytes(self) -> int:
        return self._counting_transport.written_bytes - self._counting_transport.get_write_buffer_size()

    def abort(self) -> None:
        self._counting_transport.abort()


def _connection_check(cycle: RequestResponseCycle) -> Callable[[], bool]:
    """Whether the client of the request is still connected.

    The scope keeps the function, and the request keeps its scope. With a strong reference back, each request and its body would
    stay in memory until the garbage collector runs: after a hundred requests of a megabyte these were 100 MB (measured).
    """
    reference = weakref.ref(cycle)

    def is_connected() -> bool:
        request = reference()
        return request is not None and not request.disconnected

    return is_connected
