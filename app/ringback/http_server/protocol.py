"""uvicorn's protocol on llhttp, with limits. One object for each connection.

What a peer sends is parsed in slices, because llhttp's binding hands over a header only when it is whole: the bytes of a slice
after which nothing was handed over are counted, and too many of them are refused before they are kept. A limit is met inside a
callback of the parser, which notes it and raises to end the parsing; the answer is written once the parser has returned.

Answers keep their order: while an earlier request of the connection is unanswered, a refusal only ends the reading, and the
connection is closed behind that answer.
"""

import asyncio
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from ringback.domain.errors import RingbackError
from ringback.http_server.connections import Connections
from ringback.http_server.limits import HttpLimits, Phase
from ringback.http_server.refusals import (
    MALFORMED,
    TOO_MANY,
    TOO_SLOW,
    headers_too_large,
    response_bytes,
    url_too_long,
)
from ringback.http_server.transport import CountingTransport, Flow

SLICE_BYTES: Final = 16 * 1024
"""How much is parsed at once: by so much a limit may be passed before it is noticed."""
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
_HEADER_BYTES: Final = 4
"""Around each header: the colon, the space after it, and the end of the line."""


class _ParsingEnded(Exception):
    """Raised inside a callback so that the parser stops; why is kept in the protocol."""


class BoundedHttpProtocol(HttpToolsProtocol):
    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connections: Connections,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.peer: str | None = None
        self._watched_by = connections
        self._phase: Phase | None = None
        self._running: RequestResponseCycle | None = None
        """The request whose application runs, or the last one whose did."""
        self._last: RequestResponseCycle | None = None
        """The last request whose headers have come: the same, or the end of the pipeline."""
        self._refusal: RingbackError | None = None
        self._in_head = False
        """A request has begun whose headers have not all come."""
        self._in_body = False
        self._is_replay = False
        """A new parser is being told of headers that are known."""
        self._handed_over = False
        """The parser has called back since the last slice began."""
        self._kept_bytes = 0
        """What the parser keeps of the thing that it is in the middle of."""
        self._url_bytes = self._headers_bytes = self._headers = 0
        self._body_bytes = self._body_bytes_before = 0

    @property
    def _limits(self) -> HttpLimits:
        return self._watched_by.limits

    # -- the connection ----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._counting = CountingTransport(transport)
        super().connection_made(self._counting)
        self.flow = self._flow = Flow(self._counting)
        self.peer = self._limits.peer(self.client[0]) if self.client else None
        connections = self._watched_by
        if connections.admit(self):
            self._enter(Phase.HEADERS)
        else:
            connections.count("too_many_connections")
            self._answer(TOO_MANY)

    def connection_lost(self, exc: Exception | None) -> None:
        """The one of uvicorn tells only the last request that came; the one that is served may be an earlier one."""
        self._enter(None)
        self._watched_by.forget(self)
        self.pipeline.clear()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)
        self._running = self._last = None

    def data_received(self, data: bytes) -> None:
        if self._flow.stopped or self.transport.is_closing():
            return
        if not self._in_body:
            self._in_head = True
        for place in range(0, len(data), SLICE_BYTES):
            self._parse(data[place : place + SLICE_BYTES])
            if self._flow.stopped:
                return
        self._settle()

    def _parse(self, data: bytes) -> None:
        self._handed_over = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(self._refusal or MALFORMED)
        else:
            self._kept_bytes = 0 if self._handed_over else self._kept_bytes + len(data)
            if self._headers_bytes + self._kept_bytes > self._limits.headers_bytes_max:
                self._refuse(self._headers_too_large())

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """The offer of another protocol is passed over (RFC 9110 §7.8); what follows is the body, or the next request.

        llhttp's binding takes it for bytes of the other protocol, so a new parser reads it, which is told where the body ends.
        Java's HTTP client makes such an offer with its first request.
        """
        self.parser = httptools.HttpRequestParser(self)
        if self._in_body:
            self._is_replay = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % self._framing())
            self._is_replay = False
        elif rest:
            self._in_head = True
        if rest:
            self._parse(rest)

    def _framing(self) -> bytes:
        """The headers that say where the body ends, as they came; empty when there is none."""
        lines = (b"%b: %b\r\n" % header for header in self.headers if header[0] in _FRAMING)
        return b"".join(lines)

    # -- what the parser hands over: raising ends the parsing ----------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._is_replay:
            return
        self._handed_over = self._in_head = True
        last = self._last
        if last is not None and (not last.keep_alive or len(self.pipeline) >= self._limits.pipelined_max):
            self._watched_by.count("too_many_pipelined" if last.keep_alive else "request_after_the_last")
            self._stop_reading()
            raise _ParsingEnded
        self._url_bytes = self._headers_bytes = self._headers = 0
        self._body_bytes = self._body_bytes_before = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._is_replay:
            return
        self._handed_over = True
        self._url_bytes += len(url)
        if self._url_bytes > self._limits.url_bytes_max:
            self._end_parsing(url_too_long(self._limits.url_bytes_max))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Trailers of a body count as headers do, and nobody is told of them: they could not be told from headers."""
        if self._is_replay:
            return
        self._handed_over = True
        self._headers += 1
        self._headers_bytes += len(name) + len(value) + _HEADER_BYTES
        if self._headers > self._limits.headers_max or self._headers_bytes > self._limits.headers_bytes_max:
            self._end_parsing(self._headers_too_large())
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_replay:
            return
        self._handed_over = True
        if not self._is_unambiguous():
            self._end_parsing(MALFORMED)
        super().on_headers_complete()
        self._last = self.cycle
        if not self.pipeline:  # else it was put there
            self._running = self.cycle
        self._in_head, self._in_body = False, True

    def on_body(self, body: bytes) -> None:
        self._handed_over = True
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._handed_over = True
        if self.parser.should_upgrade() and self._framing():
            return  # its body comes with another parser
        self._in_body = False
        super().on_message_complete()

    def _is_unambiguous(self) -> bool:
        """Whether every server on the way reads this request alike; llhttp refuses two lengths (RFC 9112 §3.2, §6.1)."""
        version = self.parser.get_http_version()
        names = [name for name, _ in self.headers]
        framed = version == "1.1" or b"transfer-encoding" not in names
        return version in {"1.0", "1.1"} and framed and names.count(b"host") <= 1

    def _headers_too_large(self) -> RingbackError:
        return headers_too_large(self._limits.headers_bytes_max, self._limits.headers_max)

    def _end_parsing(self, error: RingbackError) -> None:
        self._refusal = error
        raise _ParsingEnded

    # -- requests and answers ----------------------------------------------------------------------------------------------

    def _serve_next(self) -> None:
        """Start the request that has waited longest in the pipeline."""
        self._running, app = self.pipeline.pop()
        task = self.loop.create_task(self._running.run_asgi(app))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def on_response_complete(self) -> None:
        """Instead of uvicorn's, which sets a timer for each connection."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._serve_next()
        if not self.pipeline:
            self.flow.resume_reading()
        if self._in_body and self.expect_100_continue and not self._body_bytes and not self._is_serving():
            self.transport.close()  # what comes now may be the body, or the next request of a client that keeps it back
        self._settle()

    def _is_serving(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def _refuse(self, error: RingbackError) -> None:
        """Answer what is being read with this error, if it is its turn, and read nothing any more."""
        if self._flow.stopped:
            return
        self._watched_by.count(error.slug.replace("-", "_"))
        if not self._in_body:
            self._stop_reading() if self._is_serving() else self._answer(error)
        elif self._running is self._last:
            self._abandon(error)
        else:
            self.pipeline.popleft()
            self._last = self.pipeline[0][0] if self.pipeline else self._running
            self._stop_reading()

    def _abandon(self, error: RingbackError) -> None:
        """End the request that is served, whose body cannot be had: its application learns that the client has gone."""
        running = self._running
        answerable = running is not None and not running.response_started
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
            self.flow.resume_writing()
        if answerable:
            self._answer(error)
        else:
            self._stop_reading()
            self.transport.close()

    def _answer(self, error: RingbackError) -> None:
        self._stop_reading()
        self.transport.write(response_bytes(error, self.server_state.default_headers))
        self.transport.close()

    def _stop_reading(self) -> None:
        """The answers that are owed are given; the last of them closes the connection."""
        self._enter(None)
        self._flow.stop_reading()
        if self._last is not None:
            self._last.keep_alive = False

    # -- time --------------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Enter the phase that this connection is in now. Headers have one time, however many bytes they come in."""
        serving = self._is_serving()
        if self._flow.stopped or self.transport.is_closing():
            self._enter(None)
        elif self._in_head:
            self._enter_once(Phase.HEADERS)
        elif self._in_body and not serving:
            self._enter_once(Phase.REST_OF_BODY)
        elif self._in_body:
            self._await_body()
        else:
            self._enter(None if serving else Phase.NEXT_REQUEST)

    def _await_body(self) -> None:
        if self._phase is Phase.BODY and self._body_bytes - self._body_bytes_before < self._limits.progress_bytes:
            return
        self._body_bytes_before = self._body_bytes
        self._enter(Phase.BODY)

    def _enter_once(self, phase: Phase) -> None:
        if self._phase is not phase:
            self._enter(phase)

    def _enter(self, phase: Phase | None) -> None:
        if self._phase is not None and self._phase is not phase:
            self._watched_by.leave(self, self._phase)
        self._phase = phase
        if phase is not None:
            self._watched_by.enter(self, phase)

    def on_deadline(self, phase: Phase) -> None:
        self._phase = None
        if phase is Phase.BODY and self._is_held_up_by_us():
            self._enter(Phase.BODY)
        elif phase is Phase.BODY or (phase is Phase.HEADERS and self._in_head):
            self._refuse(TOO_SLOW)
        else:
            self._watched_by.count(f"idle_{phase.name.lower()}")
            self.transport.close()

    def _is_held_up_by_us(self) -> bool:
        """The application has not asked for more of the body yet, or for any of it."""
        return self.flow.read_paused or (self._last is not None and self._last.waiting_for_100_continue)

    # -- for the sweep -----------------------------------------------------------------------------------------------------

    def unread_bytes(self) -> int:
        return self._counting.get_write_buffer_size()

    def read_bytes(self) -> int:
        return self._counting.written_bytes - self._counting.get_write_buffer_size()

    def abort(self) -> None:
        self._counting.abort()
