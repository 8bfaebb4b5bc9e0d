"""Long polling: read the store, wait for a signal, and read again, until a condition holds or the time is over."""

from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeVar

from ringback.domain.clock import Clock
from ringback.domain.signals import Signals
from ringback.services.lifecycle import Lifecycle

T = TypeVar("T")

LONG_POLL_SECONDS_MAX: Final = 60.0
"""The longest wait that a request may ask for. It gets at most the service's own maximum."""
WAIT_SECONDS_MAX_DEFAULT: Final = 45.0
"""The default of RINGBACK_WAIT_SECONDS_MAX. Proxies close requests without a response after 50 or 60 s."""
POLL_INTERVAL_SECONDS: Final = 5.0
"""Signals can be lost between nodes, so the store is also read at this interval."""


async def poll_until(
    read: Callable[[], Awaitable[T]],
    is_done: Callable[[T], bool],
    *,
    signals: Signals,
    topics: Collection[str],
    wait_seconds: float,
    clock: Clock,
    lifecycle: Lifecycle,
    known: T | None = None,
    pause_seconds: float = 0.0,
) -> T:
    """Return the last value of `read`: when `is_done` holds, after `wait_seconds`, or when the service shuts down.

    `known` is what `read` would return now, if the caller is sure of it; the first read is then left out. After a signal,
    the next read comes `pause_seconds` later: signals in quick succession cause one read.
    """
    ends_at = clock.monotonic() + min(wait_seconds, LONG_POLL_SECONDS_MAX)
    with signals.listen(*topics) as waiter:
        lifecycle.shutdown_flag.add_callback(waiter.notify)
        try:
            while True:
                value, known = (await read() if known is None else known), None
                left = ends_at - clock.monotonic()
                if is_done(value) or left <= 0 or lifecycle.shutdown_flag.is_set():
                    return value
                await waiter.wait(min(left, POLL_INTERVAL_SECONDS))
                if pause_seconds > 0:
                    await clock.sleep(min(pause_seconds, left))
        finally:
            lifecycle.shutdown_flag.remove_callback(waiter.notify)
