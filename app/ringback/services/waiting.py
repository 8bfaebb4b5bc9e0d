"""Long polling: look, wait for a ring, look again, until there is something to say or the time is over."""

from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeVar

from ringback.domain.clock import Clock
from ringback.domain.signals import Signals
from ringback.services.lifecycle import Lifecycle
from ringback.waits import first_of

T = TypeVar("T")

WAIT_SECONDS_MAX: Final = 60.0
"""Longer than this and proxies on the way begin to cut (needs of clients: 60 s is the common cap)."""
LOOK_AGAIN_SECONDS: Final = 5.0
"""A ring is a hint that may be lost between nodes; the store is looked at this often without one."""


async def look_until(
    look: Callable[[], Awaitable[T]],
    settled: Callable[[T], bool],
    *,
    signals: Signals,
    topics: Collection[str],
    wait_seconds: float,
    clock: Clock,
    lifecycle: Lifecycle,
) -> T:
    """What `look` last saw: as soon as it is `settled`, or when `wait_seconds` or the service's own life is over."""
    ends_at = clock.monotonic() + min(wait_seconds, WAIT_SECONDS_MAX)
    with signals.listen(*topics) as bell:
        while True:
            seen = await look()
            left = ends_at - clock.monotonic()
            if settled(seen) or left <= 0 or lifecycle.stopping.is_set():
                return seen
            await first_of(bell.wait(min(left, LOOK_AGAIN_SECONDS)), lifecycle.stopping.wait())
