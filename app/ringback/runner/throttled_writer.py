"""Writes the newest value at most once an interval: for values that change often and matter only as the latest."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ringback.domain.clock import Clock
from ringback.waits import LocalWaiter

T = TypeVar("T")


class ThrottledWriter(Generic[T]):
    def __init__(
        self, write: Callable[[T], Awaitable[None]], *, interval_seconds: float, clock: Clock, initial: T | None = None
    ) -> None:
        self.latest = initial
        self._write = write
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._updated = LocalWaiter()
        self._is_written = True

    def update(self, value: T) -> None:
        self.latest = value
        self._is_written = False
        self._updated.notify()

    async def flush(self) -> None:
        """Write the newest value now, unless it is written."""
        if self.latest is not None and not self._is_written:
            self._is_written = True
            await self._write(self.latest)

    async def run(self) -> None:
        """Write the first value at once and later ones at the interval, until cancelled."""
        while True:
            await self._updated.wait()
            await self.flush()
            await self._clock.sleep(self._interval_seconds)
