"""The response to a request of a legacy session: one JSON body, or an event stream.

    response within `OPEN_AFTER_SECONDS`    one JSON body, unless an event came first, or the client resumes a stream
    event before it                         an event stream: head, priming event and this event are one write
    nothing until then                      an event stream: head and priming event; then events, and a comment every 15 s
    the client disconnects                  the response ends, and the handler goes on

The SDK always responds with an event stream, and starts five tasks and two streams for it: a third of the CPU time of a fast
call (measured). Its client closes the connection of each event stream as soon as it has the response, and opens another one for
the next request; after a JSON body it uses the connection again. A client whose connection breaks before the priming event
cannot resume the stream, so a stream is opened early if the response takes long.
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
        self,
        receive: Receive,
        send: Send,
        *,
        session_id: str,
        priming_event: Mapping[str, Any] | None,
        may_be_json: bool,
    ) -> None:
        self._receive = receive
        self._send = send
        self._session_header = (MCP_SESSION_ID_HEADER.encode(), session_id.encode())
        self._may_be_json = may_be_json
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

    async def send_event(self, event: Mapping[str, Any]) -> None:
        """Send a notification or a request to the client."""
        await self._write(encode_event(event))

    async def send_response(self, event: Mapping[str, Any]) -> None:
        """Send the JSON-RPC response, and end."""
        if self._is_open or not self._may_be_json:
            await self._write(encode_event(event), is_last=True)
            return
        self._is_open = self._has_ended = True
        body = event["data"].encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), self._session_header]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def end(self) -> None:
        """End the stream, unless its last event has done so."""
        await self._write(b"", is_last=True)

    def stop_attending(self) -> None:
        """The tasks are not kept: each would keep, with its cancellation, this response and the whole request."""
        attendants, self._attendants = self._attendants, []
        for task in attendants:
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
                headers = [*STREAM_HEADERS, self._session_header]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})
