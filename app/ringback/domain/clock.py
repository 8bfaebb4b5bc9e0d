"""Time, handed in.

Instants are aware UTC datetimes in whole milliseconds, as in JSON and in the stores, so a value read back equals the value
written. Times that two processes compare (leases, due dates) come from the store's clock, `Transaction.now()`. Everything else
uses the injected `Clock`: `now` by default, which tolerates a clock that is set; `wall_time` for values that another machine
compares with its own clock.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from ringback.domain.clock_confirmation import AHEAD_SECONDS_MAX, CONFIRMATION_SECONDS, ClockConfirmation

log = logging.getLogger(__name__)

# Scheduling time: the wall clock without its steps.
#
#     wall clock  ────╮ set back an hour        scheduling ──────────────────────  goes on, and loses 1 s a minute
#                     ╰──────────────────       until the two meet again
#
# Leases, due dates, deadlines and expiries use scheduling time, so that a corrected clock neither delays due work by an hour
# nor ends what has a day left. Scheduling time starts at the wall clock's time, advances with the machine's count of elapsed
# time, and approaches the wall clock by at most `1 / SLEW_DIVISOR` of the elapsed time. It never goes backwards, but for a
# correction while it is unconfirmed (`clock_confirmation`), and an hour of it takes between 59 and 61 minutes, unless the wall
# clock is set forward by more than a day: scheduling time follows at once, and is unconfirmed. Times that other machines
# compare (signatures, access tokens, HTTP dates) are wall time.

SLEW_DIVISOR: Final = 60
"""At most 1 s a minute: negligible for schedules, leases and deadlines, and faster than NTP's slewing (500 ppm)."""
CONTINUED_AHEAD_SECONDS_MAX: Final = 2 * 24 * 3600.0
"""The largest lead over the wall clock of an earlier process from which the next process continues: a date wrong by one day,
and some. A larger lead means that the earlier clock was wrong altogether, and its time is dropped."""

RESOLUTION_NANOSECONDS: Final = 1_000_000
"""Of scheduling time: readings within a millisecond of the last computed one return the same instant. One call reads it some
twenty times, so most readings cost nothing while many calls run."""
READING_SECONDS_MAX: Final = 1.0
"""A reading of another wall clock that takes longer is too inexact to replace an earlier one."""
EARLIEST_VALID_INSTANT: Final = 1_767_225_600 * 1_000_000_000
"""2026-01-01, before this code was written. A clock with an earlier time is not set yet, as on some machines after booting.
Once it is set, scheduling time jumps to it."""


class SchedulingTime(NamedTuple):
    """Scheduling time (nanoseconds since 1970) at an elapsed time (nanoseconds since some fixed moment)."""

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
        """Continue from the last time of an earlier process if it is ahead, because its due dates refer to that time."""
        ahead = last - self.instant
        return self._replace(instant=last) if 0 < ahead <= CONTINUED_AHEAD_SECONDS_MAX * 1e9 else self


class Clock(Protocol):
    def now(self) -> datetime:
        """Scheduling time in UTC, in whole milliseconds, for due dates, durations and expiries.

        It never goes backwards once it is confirmed.
        """
        ...

    def confirmed_now(self) -> datetime:
        """Scheduling time for what cannot be undone: an earlier one while `now` is unconfirmed (`clock_confirmation`)."""
        ...

    def wall_time(self) -> datetime:
        """Wall-clock time in UTC, in whole milliseconds, for values that another machine compares with its clock."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards, for measuring durations."""
        ...

    def continue_from(self, last: datetime) -> None:
        """Continue scheduling time from the last time of an earlier process, if the wall clock was set back since."""
        ...

    def confirm_after(self, last: datetime) -> bool:
        """Compare with the last time of an earlier process. Return whether the clock is so far ahead that it is unconfirmed."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clock. Its wall clock is another one's from the first call of `follow_wall_clock` on."""

    def __init__(self) -> None:
        self._followed: SchedulingTime | None = None
        """The last reading of the wall clock that this clock follows."""
        self._confirmation: ClockConfirmation | None = None
        self._set_scheduling_time(SchedulingTime(self._wall_nanoseconds(), self._elapsed_nanoseconds()))

    def now(self) -> datetime:
        elapsed = self._elapsed_nanoseconds()
        if elapsed - self._scheduling_time.elapsed >= RESOLUTION_NANOSECONDS:
            wall = self._read_wall(elapsed)
            if self._confirmation is not None:
                self._review_confirmation(self._confirmation, elapsed=elapsed, wall=wall)
            self._follow_far_step(elapsed=elapsed, wall=wall)
            self._set_scheduling_time(self._scheduling_time.advanced_to(elapsed=elapsed, wall=wall))
        return self._now

    def confirmed_now(self) -> datetime:
        self.now()
        if self._confirmation is None:
            return self._now
        return from_epoch_milliseconds(self._confirmation.confirmed_at(self._scheduling_time.elapsed) // 1_000_000)

    def wall_time(self) -> datetime:
        return from_epoch_milliseconds(self._read_wall(self._elapsed_nanoseconds()) // 1_000_000)

    def monotonic(self) -> float:
        return time.monotonic()

    def continue_from(self, last: datetime) -> None:
        self.now()
        self._set_scheduling_time(self._scheduling_time.continued_after(epoch_milliseconds(last) * 1_000_000))

    def confirm_after(self, last: datetime) -> bool:
        self.now()
        self._confirmation = ClockConfirmation.needed_after(
            epoch_milliseconds(last) * 1_000_000,
            instant=self._scheduling_time.instant,
            elapsed=self._scheduling_time.elapsed,
        )
        return self._confirmation is not None

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @property
    def ahead_milliseconds(self) -> int | None:
        """How far scheduling time is ahead of the clock that this one follows; None if it follows none."""
        if self._followed is None:
            return None
        self.now()
        current = self._scheduling_time
        return (current.instant - self._read_wall(current.elapsed)) // 1_000_000

    async def follow_wall_clock(
        self, read_wall: Callable[[], Awaitable[int]], *, find_ahead: Callable[[], Awaitable[int]] | None = None
    ) -> bool:
        """Take the wall time from another clock, which `read_wall` reads in nanoseconds since 1970.

        Returns whether the reading counts: a slow one, except the first, says too little.
        The error is at most half of the reading's duration. Scheduling time begins at the first reading, or as many
        milliseconds ahead of it as `find_ahead` finds. It approaches later ones as it approaches the machine's clock. Between
        two readings the machine counts the elapsed time.
        """
        ahead = 0 if self._followed is not None or find_ahead is None else await find_ahead()
        began = self._elapsed_nanoseconds()
        wall = await read_wall()
        ended = self._elapsed_nanoseconds()
        if (ended - began) > READING_SECONDS_MAX * 1e9 and self._followed is not None:
            return False
        reading = SchedulingTime(wall + (ended - began) // 2, ended)
        if self._followed is None:
            self._set_scheduling_time(reading._replace(instant=reading.instant + ahead * 1_000_000))
        self._followed = reading
        return True

    def _review_confirmation(self, confirmation: ClockConfirmation, *, elapsed: int, wall: int) -> None:
        instant = self._scheduling_time.instant + elapsed - self._scheduling_time.elapsed
        corrected = confirmation.corrected_instant(instant=instant, wall=wall, elapsed=elapsed)
        if corrected is not None:
            self._scheduling_time = SchedulingTime(corrected, elapsed)
            self._confirmation = confirmation.after_correction(instant=corrected, elapsed=elapsed)
        elif elapsed >= confirmation.ends:
            self._confirmation = None

    def _follow_far_step(self, *, elapsed: int, wall: int) -> None:
        """Follow a wall clock that is now more than a day ahead at once, as a start does: slewing would take months."""
        instant = self._scheduling_time.instant + elapsed - self._scheduling_time.elapsed
        if wall - instant <= AHEAD_SECONDS_MAX * 1e9 or instant < EARLIEST_VALID_INSTANT:
            return
        reached = instant if self._confirmation is None else self._confirmation.confirmed_at(elapsed)
        self._confirmation = ClockConfirmation.needed_after(reached, instant=wall, elapsed=elapsed)
        self._scheduling_time = SchedulingTime(wall, elapsed)
        times = {"last_time": reached, "clock": wall}
        facts = {name: format_iso(from_epoch_milliseconds(time // 1_000_000)) for name, time in times.items()}
        log.warning("clock.far_ahead", extra=facts | {"confirmed_after_seconds": CONFIRMATION_SECONDS})

    def _set_scheduling_time(self, current: SchedulingTime) -> None:
        self._scheduling_time = current
        self._now = from_epoch_milliseconds(current.instant // 1_000_000)

    def _read_wall(self, elapsed: int) -> int:
        if self._followed is None:
            return self._wall_nanoseconds()
        return self._followed.instant + elapsed - self._followed.elapsed

    def _wall_nanoseconds(self) -> int:
        return time.time_ns()  # noqa: TID251 - the only reader of the wall clock

    def _elapsed_nanoseconds(self) -> int:
        """Elapsed time including suspensions where the platform counts them: what is due when a laptop wakes up is due."""
        return time.monotonic_ns() if _BOOT_TIME_CLOCK_ID is None else time.clock_gettime_ns(_BOOT_TIME_CLOCK_ID)


_BOOT_TIME_CLOCK_ID: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
"""Linux has it. `time.monotonic` stands still there during a suspension."""


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@lru_cache(maxsize=256)
def seconds(value: float) -> timedelta:
    """A duration that keeps instants in whole milliseconds. Most are settings and constants, and a delivery uses five."""
    return timedelta(milliseconds=round(value * 1000))


@lru_cache(maxsize=64)
def format_iso(instant: datetime) -> str:
    """RFC 3339 in UTC with milliseconds and `Z`, as in every body: 2026-11-20T17:00:00.000Z."""
    utc = instant if instant.tzinfo is UTC else instant.astimezone(UTC)
    return f"{utc.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"


def epoch_milliseconds(instant: datetime) -> int:
    return round(instant.timestamp() * 1000)


def cut_to_milliseconds(instant: datetime) -> datetime:
    """The instant as a store keeps it. Never later, so the last microsecond of the calendar stays within it."""
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def from_epoch_milliseconds(value: int) -> datetime:
    return _EPOCH + value * _MILLISECOND  # a quarter of the time of `fromtimestamp`; runs some 50 times for each call
