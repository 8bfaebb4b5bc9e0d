"""A transport that counts written bytes and joins heads with bodies, and flow control that can stop reading for good."""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.flow_control import FlowControl

_HEAD_START: Final = b"HTTP/1."
_JOINED_BYTES_MAX: Final = 16 * 1024
"""Of what is written after a head; more is not copied."""


class CountingTransport(asyncio.Transport):
    """Delegates to another transport and counts the bytes written.

    The head of a response waits for the next write of the same turn of the event loop, and is sent with it. uvicorn writes both
    on their own, and the first write would wake the client for a head without a body: on a busy machine it then takes the
    processor from the service, which costs 0.4 ms of a fast call (measured).
    """

    __slots__ = ("_flush_handle", "_head", "_loop", "_transport", "written_bytes")

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._head = b""
        self._flush_handle: asyncio.Handle | None = None
        self.written_bytes = 0

    def write(self, data: Any) -> None:
        self.written_bytes += len(data)
        if self._flush_handle is None and data.startswith(_HEAD_START):
            self._head = data
            self._flush_handle = self._loop.call_soon(self._write_head)
            return
        head = self._take_head()
        if len(data) <= _JOINED_BYTES_MAX:
            self._transport.write(head + data if head else data)
        else:
            if head:
                self._transport.write(head)
            self._transport.write(data)

    def _write_head(self) -> None:
        if (head := self._take_head()) and not self._transport.is_closing():
            self._transport.write(head)

    def _take_head(self) -> bytes:
        """The head that waits; empty if none does."""
        if self._flush_handle is None:
            return b""
        self._flush_handle.cancel()
        self._flush_handle = None
        return self._head

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        """Close the transport once: closed again, that of asyncio for TLS forgets what its methods need (Python 3.11)."""
        self._write_head()
        if not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        self._take_head()
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        held = 0 if self._flush_handle is None else len(self._head)
        return self._transport.get_write_buffer_size() + held


class StoppableFlowControl(FlowControl):
    """uvicorn's flow control, except that after `stop_reading` nothing resumes reading."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self.is_stopped = False

    def stop_reading(self) -> None:
        self.is_stopped = True
        self.pause_reading()

    def resume_reading(self) -> None:
        if not self.is_stopped:
            super().resume_reading()
