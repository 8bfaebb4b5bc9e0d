"""Notifications of a child that sends more of them than anybody reads: the newest of each kind, and only so many a second.

They are looked at as bytes: decoding a hundred thousand a second would take the whole event loop. While they come at a usual
pace each is handed on as it came. Of a flood, one that says the same as one that waits takes its place.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

PER_SECOND: Final = 100
BURST: Final = 200
"""Handed on: each is decoded, checked by the SDK and passed on. A tool that tells of each percent stays below."""
WAITING_MAX: Final = 256
"""That say different things; of more the oldest go."""
_LOOK_BYTES: Final = 2048
_METHOD: Final = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"method"\s*:\s*"(notifications/[a-z_/]{1,64})"', re.IGNORECASE
)
_ABOUT: Final = re.compile(
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


class TokenBucket:
    def __init__(self, *, per_second: float, burst: float, now: Callable[[], float]) -> None:
        """`now` is in seconds, and never goes back."""
        self._per_second = per_second
        self._burst = burst
        self._now = now
        self._level = burst
        self._filled_at = now()

    def take(self) -> bool:
        """One token, if there is one."""
        if self.wait_seconds() > 0:
            return False
        self._level -= 1
        return True

    def spend(self) -> float:
        """One token, also if there is none; how many seconds to wait for it."""
        wait = self.wait_seconds()
        self._level -= 1
        return wait

    def wait_seconds(self) -> float:
        """Until there is one."""
        now = self._now()
        self._level = min(self._burst, self._level + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        return max(0.0, (1 - self._level) / self._per_second)


class Notices:
    def __init__(self, bucket: TokenBucket) -> None:
        self._bucket = bucket
        self._waiting: dict[object, bytes] = {}
        self.dropped = 0
        """Since the start, those in whose place a newer one stands included."""

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, line: bytes) -> bool:
        """Keep the line for later, if it is a notification that need not be handed on now."""
        found = _METHOD.match(line)
        if found is None or (not self._waiting and self._bucket.take()):
            return False
        key = _key(found[1], line)
        if self._waiting.pop(key, None) is not None:
            self.dropped += 1
        elif len(self._waiting) >= WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]
            self.dropped += 1
        self._waiting[key] = line
        return True

    def due(self) -> Iterator[bytes]:
        """Those whose time has come, in their order."""
        while self._waiting and self._bucket.take():
            yield self._waiting.pop(next(iter(self._waiting)))

    def all(self) -> Iterator[bytes]:
        """All that wait: an answer comes after what was told before it."""
        while self._waiting:
            yield self._waiting.pop(next(iter(self._waiting)))

    def wait_seconds(self) -> float | None:
        """Until the next is due; None if none waits."""
        return self._bucket.wait_seconds() if self._waiting else None


def _key(method: bytes, line: bytes) -> object:
    if not method.startswith(_REPLACEABLE):
        return object()
    return method, *(about.groups() for about in _ABOUT.finditer(line[:_LOOK_BYTES]))
