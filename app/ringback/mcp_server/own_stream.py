"""The own stream of one legacy session (GET), from its first event to its end.

    GET ──serve──▶ the SDK opens the stream ──▶ first event ──▶ notifications that no stream has carried ──▶ further ones
                                                after `FOLLOW_SECONDS_MAX` ──▶ last event ──▶ end

The first event has no data, as that of the streams of requests (2025-11-25). Its id is what a client returns with before the
first notification, and its `retry` brings the client back after a restart and not during it: clients soon give up. The last
event has a shorter `retry`, because nothing is away then. Clients of earlier versions get neither.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.streamable_http import GET_STREAM_KEY, EventMessage, SSEEvent
from mcp_types import JSONRPCNotification, RequestId
from mcp_types.version import is_version_at_least

from ringback.domain.clock import Clock
from ringback.domain.errors import Conflict
from ringback.mcp_server.session_events import SessionEventStore
from ringback.services.events.event_streams import FOLLOW_SECONDS_MAX
from ringback.waits import run_with_helper

OWN_STREAM_RETRY_MILLISECONDS: Final = 12_000
"""When a client opens the stream again after a loss. The Python SDK does so only once; a restart takes 4 to 12 s. Its
notifications wait."""
ENDED_STREAM_RETRY_MILLISECONDS: Final = 500
"""The same after a regular end: Ringback is there, and notifications wait for the client."""
_DATALESS_VERSION: Final = "2025-11-25"
"""From this version on, clients accept events without data."""
_FIRST_EVENT: Final = JSONRPCNotification(jsonrpc="2.0", method="ringback/first-event")
"""Stands for the first event within the SDK's stream."""
_LAST_EVENT: Final = JSONRPCNotification(jsonrpc="2.0", method="ringback/last-event")
"""Stands for the last event. That has no id: the client keeps the id of the last notification."""

StreamEnds = tuple[MemoryObjectSendStream[EventMessage], MemoryObjectReceiveStream[EventMessage]]


class SessionOwnStream:
    def __init__(self, events: SessionEventStore, clock: Clock) -> None:
        self.streams = _ObservedStreams(self._begin)
        """All open streams of the session, for the SDK's transport. It names the own one `GET_STREAM_KEY`."""
        self._events = events
        self._clock = clock
        self._response: _CancellableResponse | None = None
        self._has_dataless_events = False
        self._sending: asyncio.Task[None] | None = None

    async def serve(self, respond: Callable[[], Coroutine[Any, Any, None]], version: str) -> None:
        """Let the SDK respond to a GET of a client of this version.

        Raises `Conflict` for a second stream. The SDK refuses it only once the first one has begun; until then it would open
        both, and the first one would get nothing and have no end.
        """
        if self._response is not None:
            raise Conflict(
                "The stream of this session is open already: a session has one. Close that one first, or open the stream "
                "again with Last-Event-ID, which ends it."
            )
        self._has_dataless_events = is_version_at_least(version, _DATALESS_VERSION)
        self._response = response = _CancellableResponse()
        try:
            await run_with_helper(response.run(respond), self._end_after_limit())
        finally:
            self._response = None
            response.set_ended()

    async def end_abandoned_response(self) -> None:
        """End the response of a client that has come back before its loss was noticed here."""
        if self._response is not None:
            await self._response.cancel()

    async def _end_after_limit(self) -> None:
        """End the stream after `FOLLOW_SECONDS_MAX`, so that a returning client is authenticated again."""
        await self._clock.sleep(FOLLOW_SECONDS_MAX)
        if (ends := self.streams.pop(GET_STREAM_KEY, None)) is None:
            return
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            if self._has_dataless_events:
                ends[0].send_nowait(EventMessage(_LAST_EVENT))
        ends[0].close()  # only this end, so that what the stream holds is still sent

    def _begin(self, stream: MemoryObjectSendStream[EventMessage]) -> None:
        if self._has_dataless_events:
            stream.send_nowait(EventMessage(_FIRST_EVENT, self._events.create_priming_id()))
        self._sending = asyncio.create_task(self._send_unsent(stream))

    async def _send_unsent(self, stream: MemoryObjectSendStream[EventMessage]) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the stream was lost again
            for entry in self._events.list_unsent():
                if entry.is_sent:  # replaced while the stream was full
                    continue
                await stream.send(self._events.renumber(entry))
                entry.is_sent = True


def encode_dataless_event(event: EventMessage) -> SSEEvent | None:
    """The first or the last event of the own stream on the wire; None for any other event."""
    if event.message is _FIRST_EVENT:
        return {"id": event.event_id or "", "data": "", "retry": OWN_STREAM_RETRY_MILLISECONDS}
    if event.message is _LAST_EVENT:
        return {"data": "", "retry": ENDED_STREAM_RETRY_MILLISECONDS}
    return None


class _CancellableResponse:
    """A response that another request can end."""

    def __init__(self) -> None:
        self._scope = anyio.CancelScope()
        self._ended = asyncio.Event()

    async def run(self, respond: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with self._scope:
            await respond()

    def set_ended(self) -> None:
        self._ended.set()

    async def cancel(self) -> None:
        """Returns when the response has ended."""
        self._scope.cancel()
        await self._ended.wait()


class _ObservedStreams(dict[RequestId, StreamEnds]):
    """The open streams, as the SDK's transport keeps them: nothing else says from when on a stream carries events."""

    def __init__(self, on_own_stream_opened: Callable[[MemoryObjectSendStream[EventMessage]], None]) -> None:
        super().__init__()
        self._on_own_stream_opened = on_own_stream_opened

    def __setitem__(self, key: RequestId, value: StreamEnds) -> None:
        super().__setitem__(key, value)
        if key == GET_STREAM_KEY:
            self._on_own_stream_opened(value[0])
