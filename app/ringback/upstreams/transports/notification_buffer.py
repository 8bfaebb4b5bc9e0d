"""Notifications of a child that sends more of them than anybody reads: the newest of each kind, and only so many a second.

They are looked at as bytes: decoding a hundred thousand a second would take the whole event loop. While they come at a usual
pace each is handed on as it came. Of a flood, one that says the same as one that waits takes its place.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from ringback.domain.rate_limiter import RateLimit, TokenBucket

NOTIFICATION_LIMIT: Final = RateLimit(per_second=100, burst=200)
"""Handed on: each is decoded, checked by the SDK and passed on. A tool that tells of each percent stays below."""
BUFFERED_NOTIFICATIONS_MAX: Final = 256
"""That say different things; of more the oldest go."""
_KEY_BYTES: Final = 2048
_METHOD: Final = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"method"\s*:\s*"(notifications/[a-z_/]{1,64})"', re.IGNORECASE
)
_SUBJECT: Final = re.compile(
    rb'"(progressToken|uri|taskId|io\.modelcontextprotocol/subscriptionId)"\s*:\s*("[^"\\]{0,512}"|[0-9]{1,18})'
)
"""What it is about: two that differ in one of these say different things."""
_REPLACEABLE: Final = (
    b"notifications/progress",
    b"notifications/tasks",
    b"notifications/resources/",
    b"notifications/tools/",
    b"notifications/prompts/",
)
"""Of these the last one tells all. Each log message tells something of its own."""


class NotificationBuffer:
    def __init__(self, *, now: Callable[[], float]) -> None:
        """`now` returns seconds and never goes back."""
        self._now = now
        self._bucket = TokenBucket(NOTIFICATION_LIMIT)
        self._buffered: dict[object, bytes] = {}
        self.dropped_count = 0
        """Since the start, those in whose place a newer one stands included."""

    def __len__(self) -> int:
        return len(self._buffered)

    def buffer_if_limited(self, line: bytes) -> bool:
        """Keep the line for later, if it is a notification that need not be handed on now."""
        found = _METHOD.match(line)
        if found is None or (not self._buffered and self._bucket.try_acquire(self._now())):
            return False
        key = _deduplication_key(found[1], line)
        if self._buffered.pop(key, None) is not None:
            self.dropped_count += 1
        elif len(self._buffered) >= BUFFERED_NOTIFICATIONS_MAX:
            del self._buffered[next(iter(self._buffered))]
            self.dropped_count += 1
        self._buffered[key] = line
        return True

    def pop_due(self) -> Iterator[bytes]:
        """Those whose time has come, in their order."""
        while self._buffered and self._bucket.try_acquire(self._now()):
            yield self._buffered.pop(next(iter(self._buffered)))

    def pop_all(self) -> Iterator[bytes]:
        """All that wait: an answer comes after what was told before it."""
        while self._buffered:
            yield self._buffered.pop(next(iter(self._buffered)))

    def wait_seconds(self) -> float | None:
        """Until the next is due; None if none waits."""
        return self._bucket.wait_seconds(self._now()) if self._buffered else None


def _deduplication_key(method: bytes, line: bytes) -> object:
    if not method.startswith(_REPLACEABLE):
        return object()
    return method, *(about.groups() for about in _SUBJECT.finditer(line[:_KEY_BYTES]))
