"""One HTTP/1.1 connection to an upstream: a request goes out, and its response is read as it comes.

    send ──▶ ResponseHead ──▶ receive, receive, … ──▶ b"" at the end ──▶ is_reusable
                                   │ close before the end: the connection is aborted, which is how a request is cancelled

llhttp (in httptools) takes responses apart and refuses what is ambiguous. Bodies are streamed, because a tool may answer with
an event stream that stays open for days; so reading pauses while nobody takes what has come. What goes wrong is raised as
httpx2's errors, which the SDK's transport and `runner.transport` know.
"""

import asyncio
import select
from collections import deque
from typing import Final, NamedTuple, cast

import httpx2
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

HEAD_BYTES_MAX: Final = 64 * 1024
"""Status line and headers, informational responses included: four times what Node accepts."""
BUFFERED_BYTES_MAX: Final = 256 * 1024
"""Of a body, before reading pauses: one read of the event loop."""
_INFORMATIONAL: Final = range(100, 200)
_SWITCHING_PROTOCOLS: Final = 101
_BODILESS: Final = frozenset({204, 304})


class ResponseHead(NamedTuple):
    status_code: int
    headers: list[tuple[bytes, bytes]]


class HttpConnection(asyncio.Protocol):
    """Used for one request after the other, never for two at once."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        """Loop time; its pool sets it."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._writable: asyncio.Future[None] | None = None
        """Not done while the transport holds more than it should of a request."""
        self._closed = False
        self._begin()

    # -- what the transport above calls --

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow: the last response has ended by its own framing, and nothing came behind it."""
        return (
            self._ended
            and self._keeps_alive
            and not self._transport.is_closing()
            and self._transport.get_write_buffer_size() == 0
        )

    def is_quiet(self) -> bool:
        """Whether nothing has come since the last response, not even the server's end: asked of the kernel, 0.3 µs."""
        return not self._poll.poll(0)

    async def send(
        self, request: bytes, *, write_seconds: float | None = None, read_seconds: float | None = None
    ) -> ResponseHead:
        """The head of the response. Raises `httpx2.TransportError`; then, as when cancelled, the connection is closed."""
        self._begin()
        try:
            self._transport.write(request)
            if self._writable is not None:
                await self._wait_for(self._writable, write_seconds, httpx2.WriteTimeout("the request is not taken"))
            while self._head is None:
                self._check_error()
                await self._wait_for_more(read_seconds)
        except BaseException:
            self.close()
            raise
        return self._head

    async def receive(self, *, read_seconds: float | None = None) -> bytes:
        """The next piece of the body; empty at its end. Raises `httpx2.TransportError` when it breaks off."""
        while not self._chunks:
            if self._ended:
                return b""
            self._check_error()
            await self._wait_for_more(read_seconds)
        piece = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._buffered = 0
        if not self._closed:
            self._transport.resume_reading()
        return piece

    def close(self) -> None:
        """Close at once. What the upstream still has to say is not waited for."""
        if not self._transport.is_closing():
            self._transport.abort()

    # -- what the event loop calls --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self._poll = select.poll()
        self._poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        if self._ended or self._error is not None:  # nobody asked for this
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._keeps_alive = False
            if not self._ended:
                self._fail(httpx2.RemoteProtocolError(f"the upstream's response is not HTTP/1.1: {error}"))
            self.close()
        if self._head is None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._fail(
                    httpx2.RemoteProtocolError(f"the head of the response is larger than {HEAD_BYTES_MAX} bytes")
                )
                self.close()

    def eof_received(self) -> None:
        """A server that has closed its half cannot go on; a body without a length ends so."""
        if self._head is not None and self._until_close:
            self._keeps_alive = False
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        if self._head is not None and self._until_close and exc is None:
            self._end()
        elif not self._ended:
            self._fail(httpx2.ReadError(str(exc)) if exc else httpx2.RemoteProtocolError("the upstream disconnected"))

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    # -- what the parser calls --

    def on_message_begin(self) -> None:
        if self._ended:
            raise ValueError("a response that nobody asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is None:  # a trailer means nothing to anybody
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status_code = self._parser.get_status_code()
        if status_code == _SWITCHING_PROTOCOLS:
            raise ValueError("it switches to a protocol that nobody asked for")
        if status_code in _INFORMATIONAL:
            self._headers = []
            return
        framed = {b"content-length", b"transfer-encoding"}
        self._until_close = status_code not in _BODILESS and not any(
            name.lower() in framed for name, _ in self._headers
        )
        self._head = ResponseHead(status_code, self._headers)
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(
                None
            )  # it has answered before it took the whole request, and may never take the rest
        self._notify()

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)
        self._buffered += len(body)
        if self._buffered > BUFFERED_BYTES_MAX and not self._transport.is_closing():
            self._transport.pause_reading()
        self._notify()

    def on_message_complete(self) -> None:
        if self._head is not None:
            self._keeps_alive = self._parser.should_keep_alive()
            self._end()

    # -- the state of one exchange --

    def _begin(self) -> None:
        """A parser of its own for each response, so that nothing of one can leak into the next (0.4 µs)."""
        self._parser = HttpResponseParser(self)
        self._head: ResponseHead | None = None
        self._head_bytes = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._until_close = False
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._ended = False
        self._keeps_alive = False
        self._error: httpx2.TransportError | None = None
        self._more: asyncio.Future[None] | None = None

    def _end(self) -> None:
        self._ended = True
        self._notify()

    def _fail(self, error: httpx2.TransportError) -> None:
        self._error = self._error or error
        self._notify()

    def _notify(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    def _check_error(self) -> None:
        if self._error is not None:
            raise self._error

    async def _wait_for_more(self, seconds: float | None) -> None:
        self._more = self._loop.create_future()
        await self._wait_for(self._more, seconds, httpx2.ReadTimeout("the upstream is silent"))

    async def _wait_for(
        self, future: asyncio.Future[None], seconds: float | None, error: httpx2.TimeoutException
    ) -> None:
        if seconds is None:
            await future
            return
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            raise error from None
