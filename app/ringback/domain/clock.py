"""Time, handed in.

Instants are aware UTC datetimes in whole milliseconds: that is what the wire shows and what both stores keep, so a value
read back equals the value written. Times that two processes compare (leases, due dates) come from the store's clock, which
is `Transaction.now()`; everything else asks the injected `Clock`. `now` is the default, and is safe against a clock that is
set (`domain.scheduling_time`); `wall` is for what another machine compares with its own clock.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from ringback.domain.scheduling_time import SchedulingTime


class Clock(Protocol):
    def now(self) -> datetime:
        """Scheduling time in UTC, in whole milliseconds: for all that is due, lasts or runs out. It never goes backwards."""
        ...

    def wall_time(self) -> datetime:
        """The wall clock's time in UTC, in whole milliseconds: for what is compared with another machine's clock."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards, for measuring how long something took."""
        ...

    def continue_from(self, last: datetime) -> None:
        """Let scheduling time go on from where an earlier process has left it, if the wall clock was set back since."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clock."""

    def __init__(self) -> None:
        self._scheduling_time = SchedulingTime(self._wall_nanoseconds(), self._elapsed_nanoseconds())

    def now(self) -> datetime:
        self._scheduling_time = self._scheduling_time.advanced_to(elapsed=self._elapsed_nanoseconds(), wall=self._wall_nanoseconds())
        return from_epoch_milliseconds(self._scheduling_time.instant // 1_000_000)

    def wall_time(self) -> datetime:
        return from_epoch_milliseconds(self._wall_nanoseconds() // 1_000_000)

    def monotonic(self) -> float:
        return time.monotonic()

    def continue_from(self, last: datetime) -> None:
        self.now()
        self._scheduling_time = self._scheduling_time.continued_after(epoch_milliseconds(last) * 1_000_000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def _wall_nanoseconds(self) -> int:
        return time.time_ns()  # noqa: TID251 - the one place that reads it

    def _elapsed_nanoseconds(self) -> int:
        """With the time for which the machine was suspended, where it tells: what is due when a laptop wakes up is due."""
        return time.monotonic_ns() if _BOOT_TIME_CLOCK_ID is None else time.clock_gettime_ns(_BOOT_TIME_CLOCK_ID)


_BOOT_TIME_CLOCK_ID: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
"""Linux has it; `time.monotonic` stands still there during a suspension."""


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def seconds(value: float) -> timedelta:
    """A duration that keeps instants in whole milliseconds."""
    return timedelta(milliseconds=round(value * 1000))


def format_iso(instant: datetime) -> str:
    """RFC 3339 in UTC with milliseconds and `Z`, as every body of ours writes it: 2026-11-20T17:00:00.000Z."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def epoch_milliseconds(instant: datetime) -> int:
    return round(instant.timestamp() * 1000)


def from_epoch_milliseconds(value: int) -> datetime:
    return _EPOCH + value * _MILLISECOND  # a quarter of what `fromtimestamp` takes, some fifty times for each call
