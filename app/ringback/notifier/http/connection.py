"""One connection to a receiver: a request goes out, an answer comes back, and then perhaps the next.

Whether a connection can be used again is a question of safety before it is one of speed. Bytes that come when nobody asked
might be taken for the answer to the next POST, and a callback would count as delivered that never was. So a connection is
spent by the first byte that has no request before it:

    in the packet that ends an answer    AnswerReader.exact is False
    while it is idle                     data_received closes it
    between that and the next request    `is_quiet` asks the kernel right before (0.3 µs)

What comes after the next request was written cannot be told from its answer; that is how HTTP/1.1 is. A receiver that times
its surplus so fools nobody but itself: connections are of one origin only.

A receiver may say 2xx before it has read the request, and read it afterwards: acknowledge first, work later. Such a request
is written to its end, or the acknowledged callback would never arrive. After any other status the rest of it stays unsent.
Only the raw transport knows what is still to be written: that of TLS hands everything on to it at once.
"""

import asyncio
import select
import socket
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from ringback.notifier.http.response_reader import InvalidResponse, ResponseReader, TooManyInformationalResponses

_SUCCESS_STATUS_CODES: Final = range(200, 300)


class StaleConnection(ConnectionError):
    """A kept connection broke before any byte of an answer, as it does when the receiver was just closing it."""


class ReceiverResponse(NamedTuple):
    """What a receiver said."""

    status_code: int
    retry_after: str | None
    body_prefix: bytes
    """The first `ASKED_BYTES_MAX` of the body, or what has come of it."""


class ReceiverConnection(asyncio.Protocol):
    """Closing is `abort`: nothing that a receiver still owes us is worth waiting for. `lost` is told of the end."""

    def __init__(
        self, origin: str, connected: socket.socket, *, on_closed: Callable[["ReceiverConnection"], None]
    ) -> None:
        self.origin = origin
        self.idle_since = 0.0
        """Loop time; its pool's word."""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_closed = on_closed
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)
        self._reader = ResponseReader()
        self._exchange_done = self._new_exchange_future()
        self._is_reused = False
        self._is_idle = False
        self._raw_transport: asyncio.Transport
        self._transport: asyncio.Transport

    async def send_request(self, request: bytes, *, until: float) -> ReceiverResponse:
        """The answer to this request, at loop time `until` at the latest.

        Raises TimeoutError, ssl.SSLError or another OSError when there is none: StaleConnection if the request may be
        repeated. When the status is known at that time it is the answer, with so much of the body as has come, even if
        the request could not be written to its end.
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
            error = await self._exchange_done
            if self._reader.status_code in _SUCCESS_STATUS_CODES and self._has_unsent_bytes():
                await self._finish_writing(until)
        except BaseException:
            self.abort()
            raise
        finally:
            timer.cancel()
        if error is not None:
            self.abort()
            raise error
        self._is_idle = self._reader.is_cleanly_framed and not has_early_bytes and not self._has_unsent_bytes()
        return ReceiverResponse(self._reader.status_code, self._reader.retry_after, bytes(self._reader.body_prefix))

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow the exchange that is over."""
        return self._is_idle

    def is_quiet(self) -> bool:
        """Whether nothing has come, not even the end, since the last answer."""
        return not self._raw_transport.is_closing() and not self._poll.poll(0)

    def abort(self) -> None:
        """Close at once. What closes already and has written everything is let be: asyncio fails to abort it."""
        if not self._raw_transport.is_closing() or self._raw_transport.get_write_buffer_size():
            self._raw_transport.abort()

    def switch_to_tls(self, transport: asyncio.Transport) -> None:
        """Write through TLS from now on, which writes to the transport that the connection was made with."""
        self._transport = transport

    # -- what the event loop tells --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw_transport = self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        if self._is_idle:
            self.abort()
            return
        try:
            self._reader.feed_data(data)
        except TooManyInformationalResponses:
            self._raw_transport.pause_reading()  # the deadline ends it, as it ends a receiver that says nothing
        except InvalidResponse as error:
            self._end_exchange(error)
        else:
            if self._reader.is_complete:
                self._end_exchange(None)

    def eof_received(self) -> None:
        """A receiver that has closed its half cannot answer any more, even if it still reads."""
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_exchange(exc or ConnectionResetError("the receiver closed the connection without an answer"))
        self._on_closed(self)
        self.closed.set_result(None)

    # -- the end of an exchange --

    def _new_exchange_future(self) -> "asyncio.Future[Exception | None]":
        """Answers from the first moment: a receiver may give one before it has read the request."""
        return asyncio.get_running_loop().create_future()

    def _time_out(self) -> None:
        self._end_exchange(TimeoutError())

    def _end_exchange(self, error: Exception | None) -> None:
        if self._exchange_done.done():
            return
        if self._reader.status_code:
            error = None
        elif self._is_reused and not self._reader.received_bytes and not isinstance(error, TimeoutError):
            error = StaleConnection(str(error))
        self._exchange_done.set_result(error)

    def _has_unsent_bytes(self) -> bool:
        """Still writing a request that was answered before its end, or gone already."""
        unwritten = self._transport.get_write_buffer_size() + self._raw_transport.get_write_buffer_size()
        return self._raw_transport.is_closing() or unwritten > 0

    async def _finish_writing(self, until: float) -> None:
        """Of the raw transport, because TLS would close with a farewell that the receiver has to return."""
        self._raw_transport.close()
        await asyncio.wait([self.closed], timeout=until - asyncio.get_running_loop().time())
