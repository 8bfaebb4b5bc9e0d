"""Long polling: look, wait for a ring, look again, until there is something to say or the time is over."""

from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeVar

from ringback.domain.clock import Clock
from ringback.domain.signals import Signals
from ringback.services.lifecycle import Lifecycle
from ringback.waits import wait_first

T = TypeVar("T")

LONG_POLL_SECONDS_MAX: Final = 60.0
"""Longer than this and proxies on the way begin to cut (needs of clients: 60 s is the common cap)."""
POLL_INTERVAL_SECONDS: Final = 5.0
"""A ring is a hint that may be lost between nodes; the store is looked at this often without one."""


async def poll_until(
    read: Callable[[], Awaitable[T]],
    is_done: Callable[[T], bool],
    *,
    signals: Signals,
    topics: Collection[str],
    wait_seconds: float,
    clock: Clock,
    lifecycle: Lifecycle,
) -> T:
    """What `look` last saw: as soon as it is `settled`, or when `wait_seconds` or the service's own life is over."""
    ends_at = clock.monotonic() + min(wait_seconds, LONG_POLL_SECONDS_MAX)
    with signals.listen(*topics) as waiter:
        while True:
            value = await read()
            left = ends_at - clock.monotonic()
            if is_done(value) or left <= 0 or lifecycle.shutdown_event.is_set():
                return value
            await wait_first(waiter.wait(min(left, POLL_INTERVAL_SECONDS)), lifecycle.shutdown_event.wait())
