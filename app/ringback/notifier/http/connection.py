"""One connection to a receiver: it carries one request and its response at a time.

Reuse is a question of safety first. Unexpected bytes could be read as the response to the next POST, and a callback would
count as delivered that never arrived. So the first byte without a request makes the connection unusable:

    in the packet that ends a response    ResponseReader.is_cleanly_framed is False
    while the connection is idle          data_received closes it
    just before the next request          `is_quiet` polls the socket (0.3 µs)

HTTP/1.1 cannot distinguish surplus bytes that arrive after the next request was written from its response. A server that
sends such bytes harms only itself, because a connection serves one origin.

A receiver may send 2xx before it has read the whole request, and read the rest afterwards. The connection then writes the
request to its end; otherwise the acknowledged callback would never arrive. After any other status, the rest stays unsent.
Only the raw transport knows the unsent bytes: the TLS transport passes everything on at once.
"""

import asyncio
import select
import socket
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from ringback.notifier.http.failures import BodyNotRead, InvalidResponse, ResponseTimeout
from ringback.notifier.http.response_reader import ResponseReader, TooManyInformationalResponses

_SUCCESS_STATUS_CODES: Final = range(200, 300)


class StaleConnection(ConnectionError):
    """A reused connection broke before the first byte of the response: the receiver was closing it."""


class ReceiverResponse(NamedTuple):
    status_code: int
    retry_after: str | None
    location: str | None
    """Of a redirect."""
    body_prefix: bytes
    """The first `BODY_PREFIX_BYTES_MAX` of the body, or the part that arrived in time."""
    is_body_late: bool
    """Whether the body did not end in time."""


class ReceiverConnection(asyncio.Protocol):
    """Closes with `abort`, because no later byte of a receiver matters. `on_closed` is called once it is closed."""

    def __init__(
        self, origin: str, connected: socket.socket, *, on_closed: Callable[["ReceiverConnection"], None]
    ) -> None:
        self.origin = origin
        self.idle_since = 0.0
        """Loop time; set by the connection pool."""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_closed = on_closed
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)
        self._reader = ResponseReader()
        self._exchange_done = self._new_exchange_future()
        self._failure: Exception | None = None
        """Why the exchange has ended without a response, until `send_request` raises it."""
        self._is_reused = False
        self._is_idle = False
        self._is_late = False
        """Whether the current exchange has reached its deadline."""
        self._raw_transport: asyncio.Transport
        self._transport: asyncio.Transport

    async def send_request(self, request: bytes, *, until: float) -> ReceiverResponse:
        """The response to this request, at the loop time `until` at the latest.

        Raises TimeoutError, ssl.SSLError or another OSError if there is none; StaleConnection if the request may be repeated.
        If the status has arrived by `until`, it is the response, with the part of the body that has arrived, even if the
        request was not completely written.
        """
        if self._is_idle:
            self._is_idle, self._is_reused = False, True
            self._reader.reset()
            self._exchange_done = self._new_exchange_future()
        has_early_bytes = self._reader.received_bytes > 0
        if not self._raw_transport.is_closing():
            self._transport.write(request)
        timer = asyncio.get_running_loop().call_at(until, self._time_out)
        try:
            await self._exchange_done
            if self._reader.status_code in _SUCCESS_STATUS_CODES and self._has_unsent_bytes():
                await self._finish_writing(until)
        except BaseException:
            self.abort()
            raise
        finally:
            timer.cancel()
        if self._failure is not None:
            self.abort()
            try:
                raise self._failure
            finally:
                self._failure = None  # it refers to this connection and the request by its traceback
        self._is_idle = self._reader.is_cleanly_framed and not has_early_bytes and not self._has_unsent_bytes()
        reader = self._reader
        return ReceiverResponse(
            reader.status_code, reader.retry_after, reader.location, bytes(reader.body_prefix), self._is_late
        )

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow the last exchange."""
        return self._is_idle

    def is_quiet(self) -> bool:
        """Whether nothing, not even the end of the connection, has arrived since the last response."""
        return not self._raw_transport.is_closing() and not self._poll.poll(0)

    def abort(self) -> None:
        """Close at once. A transport that is closing and has nothing unsent is left alone: asyncio fails to abort it."""
        if not self._raw_transport.is_closing() or self._raw_transport.get_write_buffer_size():
            self._raw_transport.abort()

    def switch_to_tls(self, transport: asyncio.Transport) -> None:
        """Write through this TLS transport from now on; it writes to the raw transport."""
        self._transport = transport

    # -- called by the event loop --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw_transport = self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        if self._is_idle:
            self.abort()
            return
        try:
            self._reader.feed_data(data)
        except TooManyInformationalResponses:
            self._raw_transport.pause_reading()  # the attempt ends at its deadline, as with a silent receiver
        except InvalidResponse as error:
            self._end_exchange(error)
        else:
            if self._reader.is_complete:
                self._end_exchange(None)

    def eof_received(self) -> None:
        """A receiver that has closed its half cannot respond any more, even if it still reads."""
        if self._unwritten_bytes():
            self._end_exchange(BodyNotRead("the receiver closed the connection before the end of the request"))
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_exchange(exc or ConnectionResetError("the receiver closed the connection without a response"))
        self._on_closed(self)
        self.closed.set_result(None)

    # -- the end of an exchange --

    def _new_exchange_future(self) -> "asyncio.Future[None]":
        """Created before the request is written: a receiver may respond before it has read the request."""
        return asyncio.get_running_loop().create_future()

    def _time_out(self) -> None:
        self._is_late = True
        if self._unwritten_bytes():
            error = BodyNotRead("the receiver did not read the request to its end in time")
        else:
            error = ResponseTimeout("no status arrived in time")
        self._end_exchange(error)

    def _end_exchange(self, error: Exception | None) -> None:
        if self._exchange_done.done():
            return
        if self._reader.status_code:
            error = None
        elif self._is_reused and not self._reader.received_bytes and not self._is_late:
            error = StaleConnection(str(error))
        self._failure = error
        self._exchange_done.set_result(None)

    def _has_unsent_bytes(self) -> bool:
        """Whether the response came before the request was written, or the connection is closing."""
        return self._raw_transport.is_closing() or self._unwritten_bytes() > 0

    def _unwritten_bytes(self) -> int:
        return self._transport.get_write_buffer_size() + self._raw_transport.get_write_buffer_size()

    async def _finish_writing(self, until: float) -> None:
        """Close the raw transport once it has written everything: a TLS close would wait for the receiver's close_notify."""
        self._raw_transport.close()
        await asyncio.wait([self.closed], timeout=until - asyncio.get_running_loop().time())
