"""Time, handed in.

Instants are aware UTC datetimes in whole milliseconds: that is what the wire shows and what both stores keep, so a value
read back equals the value written. Times that two processes compare (leases, due dates) come from the store's clock, which
is `Transaction.now()`; everything else asks the injected `Clock`. `now` is the default, and is safe against a clock that is
set (`domain.scheduling_time`); `wall` is for what another machine compares with its own clock.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

# Scheduling time: the wall clock without its steps.
#
#     wall clock  ────╮ set back an hour        scheduling ──────────────────────  goes on, and loses 1 s a minute
#                     ╰──────────────────       until the two meet again
#
# Leases, due dates, deadlines and expiries are written and compared in it, so that a clock that somebody corrects neither delays
# what is due by an hour nor ends what has a day left. It starts at the wall clock's time, goes with the machine's own count of
# elapsed time, and approaches the wall clock by at most `1 / SLEW_DIVISOR` of what has elapsed: it never goes backwards, and an
# hour of it is between 59 and 61 minutes. What is compared with other machines (signatures, access tokens, HTTP dates) is wall
# time.

SLEW_DIVISOR: Final = 60
"""At most 1 s a minute: no ladder, lease or deadline notices that, and NTP's own slewing (500 ppm) is followed at once."""
CONTINUED_AHEAD_SECONDS_MAX: Final = 2 * 24 * 3600.0
"""How far ahead of the wall clock an earlier process may have been for the next one to go on from there: a day that was set
wrongly, and some. A clock that was further ahead than that was wrong altogether, and what it has written is not to be kept."""

EARLIEST_VALID_INSTANT: Final = 1_767_225_600 * 1_000_000_000
"""2026-01-01, before which this was not written: a clock that shows an earlier time, as some do after booting, is not set yet,
and once it is set it is followed at once."""


class SchedulingTime(NamedTuple):
    """What scheduling time was, when so much time had elapsed. All in nanoseconds: since 1970, and since some fixed moment."""

    instant: int
    elapsed: int

    def advanced_to(self, *, elapsed: int, wall: int) -> "SchedulingTime":
        """Scheduling time now. `elapsed` never goes backwards; `wall` may do anything."""
        elapsed_since = max(0, elapsed - self.elapsed)
        unslewed = self.instant + elapsed_since
        if unslewed < EARLIEST_VALID_INSTANT <= wall:
            return SchedulingTime(wall, self.elapsed + elapsed_since)
        slew_max = elapsed_since // SLEW_DIVISOR
        return SchedulingTime(unslewed + max(-slew_max, min(wall - unslewed, slew_max)), self.elapsed + elapsed_since)

    def continued_after(self, last: int) -> "SchedulingTime":
        """Go on from where an earlier process stood, when that is ahead of this one: its due dates are counted from there."""
        ahead = last - self.instant
        return self._replace(instant=last) if 0 < ahead <= CONTINUED_AHEAD_SECONDS_MAX * 1e9 else self


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
        self._scheduling_time = self._scheduling_time.advanced_to(
            elapsed=self._elapsed_nanoseconds(), wall=self._wall_nanoseconds()
        )
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
