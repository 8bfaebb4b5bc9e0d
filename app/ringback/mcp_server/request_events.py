"""The event stream that responds to a request of a legacy session.

    first event within `OPEN_AFTER_SECONDS`    head, priming event and first event are one write
    later                                      head and priming event first; then the events, and a comment every 15 seconds
    the client disconnects                     the response ends, and the handler goes on

The SDK responds with five tasks and two streams for each request, and lets the client read the head, the priming event and
the result one by one: a third of the CPU time of a fast call (measured). A client whose connection breaks before the priming
event cannot resume the stream, so a stream that takes long is opened early.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import anyio
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from starlette.types import Receive, Send

from ringback.mcp_server.single_responses import STREAM_HEADERS, cancel_at_disconnect

OPEN_AFTER_SECONDS: Final = 0.05
PING_SECONDS: Final = 15.0
"""Between two comments on an idle stream, as the SDK sends them."""
_PING: Final = b": ping\r\n\r\n"


def encode_event(event: Mapping[str, Any]) -> bytes:
    """An event as server-sent event. The SDK's events have data on one line, which is JSON or empty."""
    lines = [f"{name}: {event[name]}\r\n" for name in ("id", "event", "retry", "data") if name in event]
    return "".join([*lines, "\r\n"]).encode()


class RequestEvents:
    def __init__(
        self, receive: Receive, send: Send, *, session_id: str, priming_event: Mapping[str, Any] | None
    ) -> None:
        self._receive = receive
        self._send = send
        self._session_id = session_id
        self._opening = b"" if priming_event is None else encode_event(priming_event)
        self._is_open = False
        self._has_ended = False
        self._lock = asyncio.Lock()
        self._attendants: list[asyncio.Task[None]] = []

    def attend_later(self, response_scope: anyio.CancelScope) -> asyncio.TimerHandle:
        """Open the stream after `OPEN_AFTER_SECONDS`; from then on a disconnect cancels the scope."""

        def attend() -> None:
            self._attendants.append(asyncio.create_task(self._keep_open()))
            self._attendants.append(asyncio.create_task(cancel_at_disconnect(self._receive, response_scope)))

        return asyncio.get_running_loop().call_later(OPEN_AFTER_SECONDS, attend)

    async def send_event(self, event: Mapping[str, Any], *, is_last: bool) -> None:
        await self._write(encode_event(event), is_last=is_last)

    async def end(self) -> None:
        """End the stream, unless its last event has done so."""
        await self._write(b"", is_last=True)

    def stop_attending(self) -> None:
        for task in self._attendants:
            task.cancel()

    async def _keep_open(self) -> None:
        if not self._is_open:
            await self._write(b"")
        while True:
            await asyncio.sleep(PING_SECONDS)
            await self._write(_PING)

    async def _write(self, data: bytes, *, is_last: bool = False) -> None:
        async with self._lock:
            if self._has_ended:
                return
            self._has_ended = is_last
            if not self._is_open:
                self._is_open = True
                data = self._opening + data
                headers = [*STREAM_HEADERS, (MCP_SESSION_ID_HEADER.encode(), self._session_id.encode())]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})
