"""Clocks that a test moves: one that stands still until then, and one that goes with the machine's meanwhile."""

import asyncio
from datetime import UTC, datetime, timedelta
from types import CoroutineType
from typing import Any

from ringback.domain.clock import SystemClock, epoch_milliseconds, seconds

START = datetime(2026, 11, 20, 17, tzinfo=UTC)


class FakeClock:
    """Stands in for `domain.clock.Clock`. Both its times move together, in whole milliseconds.

    Sleeping takes no time of the test's: the clock jumps to the end of the sleep and every other task gets a turn, so a loop
    that backs off for hours is walked through at once. A test that must stay in control of time calls `advance` alone.
    """

    def __init__(self, now: datetime = START) -> None:
        self._start = now
        self._now = now

    def now(self) -> datetime:
        return self._now

    def wall_time(self) -> datetime:
        return self._now

    def continue_from(self, last: datetime) -> None:
        self._now = max(self._now, last)

    def monotonic(self) -> float:
        return (self._now - self._start).total_seconds()

    def suspend(self, for_seconds: float) -> None:
        """The machine sleeps: time passes, but for what `monotonic` counts."""
        self._now += seconds(for_seconds)
        self._start += seconds(for_seconds)

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)

    def advance(self, by_seconds: float) -> datetime:
        """Let time pass; the instant it is then."""
        self._now += seconds(max(0.0, by_seconds))
        return self._now


class ManualClock(FakeClock):
    """Stands still until the test advances it. A sleep ends once the clock has been advanced to its end."""

    def __init__(self, now: datetime = START) -> None:
        super().__init__(now)
        self._advanced = asyncio.Event()

    def sleep(self, seconds: float) -> "CoroutineType[Any, Any, None]":
        """The end is fixed when this is called. A task that runs the sleep begins later, and the test may advance before."""
        return self._sleep_until(self.monotonic() + seconds)

    async def _sleep_until(self, ends_at_seconds: float) -> None:
        while self.monotonic() < ends_at_seconds:
            await self._advanced.wait()

    def advance(self, by_seconds: float) -> datetime:
        now = super().advance(by_seconds)
        advanced, self._advanced = self._advanced, asyncio.Event()
        advanced.set()
        return now


class OffsetClock(SystemClock):
    """The machine's clock, some way ahead: waits take their own time, and a test can still let days pass."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = timedelta()
        self._stopped_at: datetime | None = None

    def now(self) -> datetime:
        return (self._stopped_at or super().now()) + self._ahead

    def stop(self) -> None:
        """Stand still, so that a deadline cannot pass before the test has got to where it should."""
        self._stopped_at = super().now()

    def resume(self) -> None:
        """Show the machine's time again."""
        self._stopped_at = None

    def wall_time(self) -> datetime:
        return super().wall_time() + self._ahead

    def continue_from(self, last: datetime) -> None:
        super().continue_from(last - self._ahead)

    def advance(self, by_seconds: float) -> None:
        self._ahead += seconds(by_seconds)


class WallClockSteps(SystemClock):
    """A machine's clock in a test's hands: time passes when the test says so, and the wall clock is set as it says."""

    def __init__(self, wall: datetime = START, *, elapsed_seconds: float = 1000.0) -> None:
        self._wall_milliseconds = epoch_milliseconds(wall)
        self._elapsed_milliseconds = round(elapsed_seconds * 1000)
        self._suspended_milliseconds = 0
        super().__init__()

    def pass_time(self, by_seconds: float) -> None:
        self._wall_milliseconds += round(by_seconds * 1000)
        self._elapsed_milliseconds += round(by_seconds * 1000)

    def step(self, by_seconds: float) -> None:
        """Somebody sets the clock; no time passes. A service reads the clock all the time, so also just before that."""
        self.now()
        self._wall_milliseconds += round(by_seconds * 1000)

    def suspend(self, for_seconds: float) -> None:
        """The machine sleeps: time passes, but for what `monotonic` counts."""
        self.pass_time(for_seconds)
        self._suspended_milliseconds += round(for_seconds * 1000)

    def monotonic(self) -> float:
        return (self._elapsed_milliseconds - self._suspended_milliseconds) / 1000

    async def sleep(self, seconds: float) -> None:
        self.pass_time(seconds)
        await asyncio.sleep(0)

    def _wall_nanoseconds(self) -> int:
        return self._wall_milliseconds * 1_000_000

    def _elapsed_nanoseconds(self) -> int:
        return self._elapsed_milliseconds * 1_000_000


class FastForwardClock(SystemClock):
    """A sleep takes a moment of the machine's time, and all of this clock's."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead_seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead_seconds

    async def sleep(self, seconds: float) -> None:
        self._ahead_seconds += seconds
        await asyncio.sleep(0.02)  # for processes that are to answer meanwhile
