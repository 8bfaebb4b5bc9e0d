"""Limits the notifications of a child or an HTTP stream: a rate limit, and in a flood only the newest of each kind.

Notifications are compared as bytes, because decoding a hundred thousand a second would occupy the event loop. At a usual rate
each is forwarded unchanged. In a flood, a new notification replaces a buffered one with the same subject.

No event of a stream (MCP Events) is lost in silence: a marker follows the last event before the loss. It ends the stream, which
begins again from its cursor.
"""

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Protocol

from ringback.domain.rate_limiter import RateLimit, TokenBucket

NOTIFICATION_LIMIT: Final = RateLimit(per_second=100, burst=200)
"""For forwarded notifications, which are decoded and checked by the SDK. A tool that reports each percent stays below."""
BUFFERED_NOTIFICATIONS_MAX: Final = 256
"""Buffered notifications with different subjects; above the limit, the oldest is dropped."""
_KEY_BYTES: Final = 2048
_METHOD: Final = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"method"\s*:\s*"(notifications/[a-z_/]{1,64})"', re.IGNORECASE
)
_SUBJECT: Final = re.compile(
    rb'"(progressToken|uri|taskId|io\.modelcontextprotocol/subscriptionId)"\s*:\s*("[^"\\]{0,512}"|[0-9]{1,18})'
)
"""The subject of a notification: notifications that differ in one of these members are all kept."""
_PROGRESS_METHOD: Final = b"notifications/progress"
_REPLACEABLE: Final = (
    _PROGRESS_METHOD,
    b"notifications/tasks",
    b"notifications/resources/",
    b"notifications/tools/",
    b"notifications/prompts/",
)
"""The newest of these replaces older ones. Other notifications, for example log messages, are never replaced."""


FRAMES_LOST_METHOD: Final = "notifications/ringback/frames_lost"
"""The method of a marker: later frames of the stream that it names are missing. A child that sends one ends its own stream."""
_FRAME_METHOD: Final = b"notifications/events/event"
_STREAM_ID: Final = re.compile(rb'"io\.modelcontextprotocol/subscriptionId"\s*:\s*("[^"\\]{1,128}")')
_STREAM_IDS_MAX: Final = 4
"""Of one frame: its data may contain what looks like another stream's id. Such a stream begins again, and loses nothing."""


class ForwardLimit(Protocol):
    """Implemented by `TokenBucket` and `message_flow.SharedLimit`. `now` is in monotonic seconds."""

    def try_acquire(self, now: float) -> bool: ...

    def wait_seconds(self, now: float) -> float: ...


class NotificationBuffer:
    def __init__(self, *, now: Callable[[], float], limit: ForwardLimit | None = None) -> None:
        """`now` returns monotonic seconds. `limit` defaults to `NOTIFICATION_LIMIT`."""
        self._now = now
        self._bucket = limit or TokenBucket(NOTIFICATION_LIMIT)
        self._buffered: dict[object, bytes] = {}
        self._loss_markers: dict[bytes, None] = {}
        self.dropped_count = 0
        """Dropped and replaced notifications since the last reset."""

    def __len__(self) -> int:
        return len(self._buffered) + len(self._loss_markers)

    @property
    def is_limiting(self) -> bool:
        """Whether the next notification would be buffered."""
        return bool(self._buffered) or self._bucket.wait_seconds(self._now()) > 0

    def buffer_if_limited(self, line: bytes, event: bytes | None = None) -> bool:
        """Buffer the line if it is a notification above the rate limit; False if it must be forwarded now.

        `event` is buffered instead of the line, if the line is the data of an event.
        """
        found = _METHOD.match(line)
        if found is None or (not self._buffered and self._bucket.try_acquire(self._now())):
            return False
        key = _deduplication_key(found[1], line)
        if self._buffered.pop(key, None) is not None:
            self.dropped_count += 1
        elif len(self._buffered) >= BUFFERED_NOTIFICATIONS_MAX:
            self._drop_oldest()
        self._buffered[key] = line if event is None else event
        return True

    def count_dropped(self) -> int:
        """Dropped and replaced notifications since the last count."""
        dropped, self.dropped_count = self.dropped_count, 0
        return dropped

    def pop_due(self) -> Iterator[bytes]:
        """Those whose time has come, in their order."""
        yield from self._pop_loss_markers()
        while self._buffered and self._bucket.try_acquire(self._now()):
            yield self._buffered.pop(next(iter(self._buffered)))

    def pop_all(self) -> Iterator[bytes]:
        """All buffered lines, to be forwarded before a response that arrived after them."""
        yield from self._pop_loss_markers()
        while self._buffered:
            yield self._buffered.pop(next(iter(self._buffered)))

    def wait_seconds(self) -> float | None:
        """Until the next is due; None if none waits."""
        if self._loss_markers:
            return 0.0
        return self._bucket.wait_seconds(self._now()) if self._buffered else None

    def _drop_oldest(self) -> None:
        line = self._buffered.pop(next(iter(self._buffered)))
        self.dropped_count += 1
        if (found := _METHOD.match(line)) is not None and found[1] == _FRAME_METHOD:
            stream_ids = islice(_STREAM_ID.finditer(line), _STREAM_IDS_MAX)
            self._loss_markers.update(dict.fromkeys(_make_loss_marker(each[1]) for each in stream_ids))

    def _pop_loss_markers(self) -> Iterator[bytes]:
        """The dropped frames were the oldest, so their markers come before all that is buffered."""
        while self._loss_markers:
            yield self._loss_markers.popitem()[0]


def read_progress_key(line: bytes) -> object | None:
    """What the subject of this progress is: of two with the same key, the newer one replaces the older. None if it is none."""
    found = _METHOD.match(line)
    return None if found is None or found[1] != _PROGRESS_METHOD else _deduplication_key(found[1], line)


def is_plain_notification(line: bytes) -> bool:
    """Whether a `NotificationBuffer` recognizes the line as a notification, and so has counted it."""
    return _METHOD.match(line) is not None


def _make_loss_marker(stream_id: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","method":"%b","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%b}}}' % (
        FRAMES_LOST_METHOD.encode(),
        stream_id,
    )


def _deduplication_key(method: bytes, line: bytes) -> object:
    if not method.startswith(_REPLACEABLE):
        return object()
    return method, *(about.groups() for about in _SUBJECT.finditer(line[:_KEY_BYTES]))
