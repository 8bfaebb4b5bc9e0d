"""Opens the requests of one session that stay open while their notifications arrive (`received_streams`)."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

from mcp.shared.dispatcher import CallOptions

from ringback.asyncio_tasks import end_tasks
from ringback.protocol.mcp_events.names import EventMethod
from ringback.upstreams.events.event_frames import EventFrames
from ringback.upstreams.received_streams import NotificationStream, ReceivedStream
from ringback.upstreams.session_dispatcher import SessionDispatcher
from ringback.upstreams.session_ports import NotificationStreamPort

_LISTEN_METHOD: Final = "subscriptions/listen"

AddEnvelope = Callable[[str, Mapping[str, Any], Mapping[str, Any]], tuple[dict[str, Any], CallOptions]]
"""Of a method, its params and the capabilities of the client: the params to send, and the options of the request."""
SendRequest = Callable[[str, dict[str, Any], CallOptions], Coroutine[Any, Any, dict[str, Any]]]


class StreamOpener:
    def __init__(
        self, dispatcher: SessionDispatcher, *, is_modern: bool, add_envelope: AddEnvelope, send: SendRequest
    ) -> None:
        self._dispatcher = dispatcher
        self._is_modern = is_modern
        self._add_envelope = add_envelope
        self._send = send
        self._stream_numbers = count(1)
        self._unsupported_filters: set[str] = set()

    @asynccontextmanager
    async def open_notification_stream(
        self, notification_filter: Mapping[str, Any], *, client_capabilities: Mapping[str, Any]
    ) -> AsyncGenerator[NotificationStreamPort | None]:
        """Open a stream with this filter; None if the upstream does not support all of it, now or earlier."""
        if not self._is_modern:
            with self._dispatcher.receive_task_notifications(notification_filter.get("taskIds", ())) as stream:
                yield stream
            return
        if self._unsupported_filters & set(notification_filter):
            yield None
            return
        async with self.open_listen_stream(notification_filter, client_capabilities=client_capabilities) as stream:
            acknowledged_filter = await stream.wait_acknowledged()
            if acknowledged_filter is not None and not set(notification_filter) <= set(acknowledged_filter):
                self._unsupported_filters |= set(notification_filter) - set(acknowledged_filter)
                acknowledged_filter = None
            yield None if acknowledged_filter is None else stream

    @asynccontextmanager
    async def open_listen_stream(
        self, notifications: Mapping[str, Any], *, client_capabilities: Mapping[str, Any]
    ) -> AsyncGenerator[NotificationStream]:
        """Open a `subscriptions/listen` stream (2026-07-28). The upstream may support only a part of the filter."""
        stream = NotificationStream()
        params = {"notifications": dict(notifications)}
        async with self._open_stream(_LISTEN_METHOD, params, stream, client_capabilities=client_capabilities):
            yield stream

    @asynccontextmanager
    async def open_event_stream(self, params: Mapping[str, Any]) -> AsyncGenerator[EventFrames]:
        """Open an events/stream request with these params, in either era. Its frames end with the request."""
        frames = EventFrames()
        async with self._open_stream(EventMethod.STREAM, params, frames) as request_id:
            with self._dispatcher.paced_streams.pace(request_id, frames.wait_for_space):
                try:
                    yield frames
                finally:
                    frames.end()  # its response no longer waits for space in their queue

    @asynccontextmanager
    async def _open_stream(
        self,
        method: str,
        params: Mapping[str, Any],
        stream: ReceivedStream,
        *,
        client_capabilities: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[str]:
        """Send a request that stays open until the end of the block. Its notifications go to `stream`. Yields its id."""
        request_id = f"ringback-stream-{next(self._stream_numbers)}"
        stamped, options = self._add_envelope(method, params, client_capabilities or {})
        options["request_id"] = request_id
        self._dispatcher.streams[request_id] = stream
        sending = asyncio.create_task(self._send(method, stamped, options))
        sending.add_done_callback(stream.on_request_done)
        try:
            yield request_id
        finally:
            del self._dispatcher.streams[request_id]
            await end_tasks([sending])
