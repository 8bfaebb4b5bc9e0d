"""Clocks that a test moves: one that stands still otherwise, and one that also follows the machine's clock."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from types import CoroutineType
from typing import Any

from ringback.domain.clock import SystemClock, epoch_milliseconds, seconds

START = datetime(2026, 11, 20, 17, tzinfo=UTC)


class FakeClock:
    """Implements `domain.clock.Clock`. Wall time and monotonic time move together, in whole milliseconds.

    A sleep takes no real time: the clock jumps to the end of the sleep and every other task gets a turn, so hours of backoff
    pass at once. A test that controls the time itself uses a clock whose sleeps wait for `advance`.
    """

    def __init__(self, now: datetime = START) -> None:
        self._start = now
        self._now = now

    def now(self) -> datetime:
        return self._now

    def wall_time(self) -> datetime:
        return self._now

    def confirmed_now(self) -> datetime:
        return self._now

    def continue_from(self, last: datetime) -> None:
        self._now = max(self._now, last)

    def confirm_after(self, last: datetime) -> bool:  # noqa: ARG002 - a clock's name
        """A test that begins with a wrong clock uses `WallClockSteps`."""
        return False

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
        """Let time pass, and return the new instant."""
        self._now += seconds(max(0.0, by_seconds))
        return self._now


class ManualClock(FakeClock):
    """Stands still until the test advances it. A sleep ends once the clock has been advanced to its end."""

    def __init__(self, now: datetime = START) -> None:
        super().__init__(now)
        self._advanced = asyncio.Event()

    def sleep(self, seconds: float) -> "CoroutineType[Any, Any, None]":
        """The end is fixed by this call, because the test may advance the clock before the task of the sleep begins."""
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
    """The machine's clock with an offset: waits take real time, and a test can let days pass."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = timedelta()
        self._stopped_at: datetime | None = None

    def now(self) -> datetime:
        return (self._stopped_at or super().now()) + self._ahead

    def stop(self) -> None:
        """Stop the clock, so that no deadline passes before the test reaches its point."""
        self._stopped_at = super().now()

    def resume(self) -> None:
        """Show the machine's time again."""
        self._stopped_at = None

    def wall_time(self) -> datetime:
        return super().wall_time() + self._ahead

    def confirmed_now(self) -> datetime:
        return (self._stopped_at or super().confirmed_now()) + self._ahead

    def continue_from(self, last: datetime) -> None:
        super().continue_from(last - self._ahead)

    def confirm_after(self, last: datetime) -> bool:
        return super().confirm_after(last - self._ahead)

    def advance(self, by_seconds: float) -> None:
        self._ahead += seconds(by_seconds)


class WallClockSteps(SystemClock):
    """A machine's clock under the test's control: the test lets time pass and sets the wall clock."""

    def __init__(
        self, wall: datetime = START, *, elapsed_seconds: float = 1000.0, follows_database: bool = False
    ) -> None:
        self._follows_database = follows_database
        self._wall_milliseconds = epoch_milliseconds(wall)
        self._elapsed_milliseconds = round(elapsed_seconds * 1000)
        self._suspended_milliseconds = 0
        super().__init__()

    def pass_time(self, by_seconds: float) -> None:
        self._wall_milliseconds += round(by_seconds * 1000)
        self._elapsed_milliseconds += round(by_seconds * 1000)

    def step(self, by_seconds: float) -> None:
        """Set the wall clock without letting time pass. Reads the clock first, as a service does continually."""
        self.now()
        self._wall_milliseconds += round(by_seconds * 1000)

    def suspend(self, for_seconds: float) -> None:
        """The machine sleeps: time passes, but for what `monotonic` counts."""
        self.pass_time(for_seconds)
        self._suspended_milliseconds += round(for_seconds * 1000)

    async def follow_wall_clock(
        self, read_wall: Callable[[], Awaitable[int]], *, find_ahead: Callable[[], Awaitable[int]] | None = None
    ) -> bool:
        if self._follows_database:
            return await super().follow_wall_clock(read_wall, find_ahead=find_ahead)
        await read_wall()  # shows that the connection works
        return True

    def monotonic(self) -> float:
        return (self._elapsed_milliseconds - self._suspended_milliseconds) / 1000

    async def sleep(self, seconds: float) -> None:
        self.pass_time(seconds)
        await asyncio.sleep(0)

    def _wall_nanoseconds(self) -> int:
        return self._wall_milliseconds * 1_000_000

    def _elapsed_nanoseconds(self) -> int:
        return self._elapsed_milliseconds * 1_000_000


class StoppedDurations(SystemClock):
    """The machine's clock, but durations pass only when the test says so. Sleeps take real time."""

    def __init__(self) -> None:
        super().__init__()
        self._elapsed_seconds = 0.0

    def monotonic(self) -> float:
        return self._elapsed_seconds

    def pass_time(self, by_seconds: float) -> None:
        self._elapsed_seconds += by_seconds


class FastForwardClock(SystemClock):
    """A sleep takes a moment of real time, and its full time on this clock."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead_seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead_seconds

    async def sleep(self, seconds: float) -> None:
        self._ahead_seconds += seconds
        await asyncio.sleep(0.02)  # lets other processes respond
