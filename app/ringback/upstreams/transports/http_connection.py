"""One HTTP/1.1 connection to an upstream: sends a request and streams its response.

    send_request ──▶ ResponseHead ──▶ receive_chunk, … ──▶ b"" at the end ──▶ is_reusable
                                        │ close before the end aborts the connection, which cancels the request

llhttp (in httptools) parses responses and rejects ambiguous ones. Bodies are streamed, because a tool may respond with an event
stream that stays open for days; reading pauses while the body is not consumed. Errors are those of httpx2, which the SDK's
transport and `guarded_http` handle.
"""

import asyncio
import select
from collections import deque
from typing import Final, NamedTuple, cast

import httpx2
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

HEAD_BYTES_MAX: Final = 64 * 1024
"""For status line and headers, including informational responses, and for later bytes outside the body: trailers and chunk
extensions. Four times the limit of Node. The last read may exceed it by its own size, which the event loop limits."""
BUFFERED_BYTES_MAX: Final = 256 * 1024
"""Body bytes buffered before reading pauses: one read of the event loop."""
_TOO_LARGE: Final = (
    f"the head of the response, or the framing between the chunks of its body, is larger than {HEAD_BYTES_MAX} bytes"
)
_HEADER_BYTES: Final = 4
"""For each header: the colon, the space and the end of the line."""
_INFORMATIONAL: Final = range(100, 200)
_SWITCHING_PROTOCOLS: Final = 101
_BODILESS: Final = frozenset({204, 304})


class ResponseHead(NamedTuple):
    status_code: int
    headers: list[tuple[bytes, bytes]]


class UpstreamHttpConnection(asyncio.Protocol):
    """Serves one request at a time."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        """Loop time; the pool sets it."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._writable: asyncio.Future[None] | None = None
        """Pending while the write buffer of the transport is above its limit."""
        self._closed = False
        self._begin_exchange()
        self._ended = True  # data before the first request is an error

    # -- called by the pool --

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow: the last response ended by its own framing, without extra data."""
        return (
            self._ended
            and self._keeps_alive
            and self._buffered <= BUFFERED_BYTES_MAX  # else reading is paused, and nothing would resume it
            and not self.is_closing
            and self._transport.get_write_buffer_size() == 0
        )

    @property
    def is_closing(self) -> bool:
        """Whether the connection is closed or closing."""
        return self._closed or self._transport.is_closing()

    def has_no_unread_data(self) -> bool:
        """Whether the kernel has neither data nor an end of stream for this connection (0.3 µs)."""
        return not self._poll.poll(0)

    async def send_request(
        self, request: bytes, *, write_seconds: float | None = None, read_seconds: float | None = None
    ) -> ResponseHead:
        """Send a request and return the head of the response. Raises `httpx2.TransportError`.

        An error or a cancellation closes the connection. `write_seconds` limits each pause in writing, `read_seconds` the wait
        for the next data. `httpx2.ConnectError` means that nothing was sent, because the upstream had closed the connection.
        """
        if self.is_closing:
            raise httpx2.ConnectError("the upstream closed the connection before a request was sent")
        self._begin_exchange()
        try:
            self._transport.write(request)
            await self._wait_until_written(write_seconds)
            while self._head is None:
                self._check_error()
                await self._wait_for_data(read_seconds)
        except BaseException:
            self.close()
            raise
        return self._head

    async def receive_chunk(self, *, read_seconds: float | None = None) -> bytes:
        """The next bytes of the body; empty at its end. Raises `httpx2.TransportError` if the body is incomplete."""
        while not self._chunks:
            if self._ended:
                return b""
            self._check_error()
            await self._wait_for_data(read_seconds)
        piece = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._buffered = 0
        if not self._closed:
            self._transport.resume_reading()
        return piece

    def close(self) -> None:
        """Close at once, without flushing the write buffer or a TLS shutdown."""
        if not self._ended:
            self._set_error(httpx2.ReadError("the connection was closed in the middle of a response"))
        if not self._closed:
            self._transport.abort()

    # -- called by the event loop --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport does not inherit from it
        self._poll = select.poll()
        self._poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        if self._ended or self._error is not None:  # data without a request
            self.close()
            return
        had_body = self._body_bytes
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._keeps_alive = False
            if not self._ended:
                self._set_error(httpx2.RemoteProtocolError(f"the upstream's response is not HTTP/1.1: {error}"))
            self.close()
        self._framing_bytes = 0 if self._body_bytes > had_body else self._framing_bytes + len(data)
        if self._framing_bytes > HEAD_BYTES_MAX and not self._ended:
            self._set_error(httpx2.RemoteProtocolError(_TOO_LARGE))
            self.close()

    def eof_received(self) -> None:
        """Handle the end of the server's stream, which also ends a body without a length."""
        if self._reads_until_close:
            self._end_exchange()
        elif not self._ended:
            self._set_error(httpx2.RemoteProtocolError("the upstream disconnected"))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        del self._parser  # it refers to this connection, whose unread body would stay until the garbage collector runs
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        if self._reads_until_close and exc is None and self._error is None:
            self._end_exchange()
        elif not self._ended:
            self._set_error(
                httpx2.ReadError(str(exc)) if exc else httpx2.RemoteProtocolError("the upstream disconnected")
            )

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    # -- called by the parser --

    def on_message_begin(self) -> None:
        if self._ended:
            raise ValueError("a response without a request")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is None:  # trailers are ignored
            self._header_bytes += len(name) + len(value) + _HEADER_BYTES
            if self._header_bytes > HEAD_BYTES_MAX:
                self._set_error(httpx2.RemoteProtocolError(_TOO_LARGE))
                raise ValueError(_TOO_LARGE)
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status_code = self._parser.get_status_code()
        if status_code == _SWITCHING_PROTOCOLS:
            raise ValueError("it switches to a protocol that was not requested")
        if status_code in _INFORMATIONAL:
            self._headers = []
            return
        framed = {b"content-length", b"transfer-encoding"}
        self._reads_until_close = status_code not in _BODILESS and not any(
            name.lower() in framed for name, _ in self._headers
        )
        self._head = ResponseHead(status_code, self._headers)
        if self._writable is not None and not self._writable.done():
            # The upstream responded before it read the whole request, and may never read the rest.
            self._writable.set_result(None)
        self._wake_reader()

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)
        self._buffered += len(body)
        self._body_bytes += len(body)
        if self._buffered > BUFFERED_BYTES_MAX and not self._transport.is_closing():
            self._transport.pause_reading()
        self._wake_reader()

    def on_message_complete(self) -> None:
        if self._head is not None:
            self._keeps_alive = self._parser.should_keep_alive()
            self._end_exchange()

    # -- the state of one exchange --

    def _begin_exchange(self) -> None:
        """Use a new parser for each response, so that no state leaks into the next one (0.4 µs)."""
        self._parser = HttpResponseParser(self)
        self._head: ResponseHead | None = None
        self._header_bytes = self._framing_bytes = self._body_bytes = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._reads_until_close = False
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._ended = False
        self._keeps_alive = False
        self._error: httpx2.TransportError | None = None
        self._data_arrived: asyncio.Future[None] | None = None

    def _end_exchange(self) -> None:
        self._ended = True
        self._wake_reader()

    def _set_error(self, error: httpx2.TransportError) -> None:
        self._error = self._error or error
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._data_arrived is not None and not self._data_arrived.done():
            self._data_arrived.set_result(None)

    def _check_error(self) -> None:
        """Raise a copy: a raised error refers to this connection by its traceback."""
        if self._error is not None:
            raise type(self._error)(str(self._error))

    async def _wait_until_written(self, seconds: float | None) -> None:
        """Wait until the upstream has read enough of the request or has responded. Only a pause without progress times out."""
        while (writable := self._writable) is not None and not writable.done():
            pending_before = self._transport.get_write_buffer_size()
            try:
                await _wait_with_timeout(writable, seconds, httpx2.WriteTimeout, "the request is not taken")
            except httpx2.WriteTimeout:
                if self._transport.get_write_buffer_size() >= pending_before:
                    raise

    async def _wait_for_data(self, seconds: float | None) -> None:
        self._data_arrived = self._loop.create_future()
        await _wait_with_timeout(self._data_arrived, seconds, httpx2.ReadTimeout, "the upstream is silent")


async def _wait_with_timeout(
    future: asyncio.Future[None], seconds: float | None, error_type: type[httpx2.TimeoutException], text: str
) -> None:
    if seconds is None:
        await future
        return
    try:
        async with asyncio.timeout(seconds):
            await asyncio.shield(future)  # the future may be awaited again
    except TimeoutError:
        raise error_type(text) from None
