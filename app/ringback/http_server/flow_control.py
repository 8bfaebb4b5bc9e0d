"""A transport that counts written bytes, and flow control that can stop reading for good."""

import asyncio
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl


class CountingTransport(asyncio.Transport):
    """Delegates to another transport and counts the bytes written."""

    __slots__ = ("_transport", "written_bytes")

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self.written_bytes = 0

    def write(self, data: Any) -> None:
        self.written_bytes += len(data)
        self._transport.write(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()


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
