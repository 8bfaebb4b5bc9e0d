"""Progress and log messages of running calls, for listeners in this process. Queues are bounded; nothing is stored."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, get_args

from mcp_types import LoggingLevel

from ringback.domain import jsontext
from ringback.domain.call import Progress
from ringback.domain.ids import CallId
from ringback.domain.meta import without_reserved_meta
from ringback.domain.upstreams import UpstreamNotification

QUEUED_NOTIFICATIONS_MAX: Final = 256
"""Notifications queued for one listener. A client that reads loses none; one that does not read costs no more than this."""
LOG_MESSAGE_BYTES_MAX: Final = 64 * 1024
"""A log message is a line, perhaps with a traceback; a larger one is dropped."""
LOG_LEVELS: Final[tuple[str, ...]] = get_args(LoggingLevel)
"""In order of rising severity (RFC 5424), as the SDK declares them."""
PROGRESS_METHOD: Final = "notifications/progress"
LOG_MESSAGE_METHOD: Final = "notifications/message"


class NotificationHub:
    """Implements `domain.upstreams.CallNotifications`."""

    def __init__(self) -> None:
        self._streams: dict[CallId, set[CallNotificationStream]] = {}

    @contextmanager
    def subscribe_call(
        self, call_id: CallId, *, log_level: str | None = None, on_notification: Callable[[], None] | None = None
    ) -> "Generator[CallNotificationStream]":
        stream = CallNotificationStream(None if log_level is None else LOG_LEVELS.index(log_level), on_notification)
        self._streams.setdefault(call_id, set()).add(stream)
        try:
            yield stream
        finally:
            streams = self._streams[call_id]
            streams.discard(stream)
            if not streams:
                del self._streams[call_id]

    def get_log_level(self, call_id: CallId) -> str | None:
        """The least severe level that a listener requests; None if no listener wants log messages."""
        levels = [
            stream.log_level_index for stream in self._streams.get(call_id, ()) if stream.log_level_index is not None
        ]
        return LOG_LEVELS[min(levels)] if levels else None

    def publish_progress(self, call_id: CallId, progress: Progress) -> None:
        params = {"progress": progress.progress, "total": progress.total, "message": progress.message}
        notification = UpstreamNotification(
            method=PROGRESS_METHOD, params={key: value for key, value in params.items() if value is not None}
        )
        for stream in self._streams.get(call_id, ()):
            stream.put_notification(notification)

    def publish_log_message(self, call_id: CallId, params: Mapping[str, Any]) -> None:
        """Publish the parameters of a notifications/message that certainly belongs to this call."""
        level = params.get("level")
        if level not in LOG_LEVELS or not _is_small(params):
            return
        notification = UpstreamNotification(method=LOG_MESSAGE_METHOD, params=without_reserved_meta(params))
        for stream in self._streams.get(call_id, ()):
            if stream.log_level_index is not None and LOG_LEVELS.index(level) >= stream.log_level_index:
                stream.put_notification(notification)


def _is_small(params: Mapping[str, Any]) -> bool:
    try:
        return len(jsontext.dumps(params)) <= LOG_MESSAGE_BYTES_MAX
    except TypeError:
        return False


class CallNotificationStream(AsyncIterator[UpstreamNotification]):
    """The notifications for one listener. The stream has no end."""

    def __init__(self, log_level: int | None, on_notification: Callable[[], None] | None) -> None:
        self._on_notification = on_notification
        self.log_level_index = log_level
        """The index in `LOG_LEVELS` of the least severe message to deliver; None: no log messages."""
        self._queue: asyncio.Queue[UpstreamNotification] = asyncio.Queue()

    def put_notification(self, notification: UpstreamNotification) -> None:
        if self._queue.qsize() >= QUEUED_NOTIFICATIONS_MAX:
            self._queue.get_nowait()
        self._queue.put_nowait(notification)
        if self._on_notification is not None:
            self._on_notification()

    async def __anext__(self) -> UpstreamNotification:
        return await self._queue.get()
