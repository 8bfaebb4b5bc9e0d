"""The first minutes in which the clock is far ahead: of the last time that an earlier process saved, or of its own.

    last time saved ────── a day or more ──────▶ the clock at the start ── `CONFIRMATION_SECONDS` ──▶ confirmed
                   confirmed time goes on here ─────────────────────────▶ and jumps to scheduling time

Either the service was off for so long, or the clock is wrong: machines start with a wrong clock until NTP corrects it, within
minutes. So the service works by the clock, but does by confirmed time what cannot be undone: it removes, gives up, suspends,
times out and starts scheduled calls only what it would have at that time. After a real pause all of it happens some
minutes late.

A clock that is set forward by more than a day while the service runs is followed in the same way: it was wrong since it booted,
or is wrong now. The time before the step takes the place of the last time saved.

If the wall clock is set back meanwhile, scheduling time follows it at once instead of slewing, which would take years.
"""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

CONFIRMATION_SECONDS: Final = 300.0
"""NTP clients correct the clock within seconds of the network, and boot within minutes of it."""
AHEAD_SECONDS_MAX: Final = 24 * 3600.0
"""A start so long after the last time saved is a usual pause, and a clock that is wrong by less harms little."""
STEP_BACK_SECONDS_MIN: Final = 3600.0
"""A smaller correction is slewed."""
_SECOND: Final = 1_000_000_000


def is_of_wrong_clock(instant: datetime, *, now: datetime) -> bool:
    """Whether a clock that was far ahead wrote an instant that lies at most minutes after the time of its writing."""
    return instant > latest_of_right_clock(now)


def latest_of_right_clock(now: datetime) -> datetime:
    """The last instant that is not `is_of_wrong_clock`, for statements that compare rows."""
    return now + timedelta(seconds=STEP_BACK_SECONDS_MIN)


class ClockConfirmation(NamedTuple):
    """All in nanoseconds: instants since 1970, elapsed times since some fixed moment."""

    last: int
    """The last instant that an earlier process saved, or the one before the step."""
    started: int
    """The elapsed time of the start, or of the step."""
    ends: int
    """The elapsed time at which the clock counts as confirmed."""

    @classmethod
    def needed_after(cls, last: int, *, instant: int, elapsed: int) -> "ClockConfirmation | None":
        """None if the clock is not far ahead."""
        if instant - last <= AHEAD_SECONDS_MAX * _SECOND:
            return None
        return cls(last, elapsed, elapsed + round(CONFIRMATION_SECONDS * _SECOND))

    def confirmed_at(self, elapsed: int) -> int:
        """The instant that has certainly been reached: the last one known, and the time since."""
        return self.last + elapsed - self.started

    def corrected_instant(self, *, instant: int, wall: int, elapsed: int) -> int | None:
        """Scheduling time after the wall clock was set back; None if it was not."""
        if instant - wall < STEP_BACK_SECONDS_MIN * _SECOND:
            return None
        return max(wall, self.confirmed_at(elapsed))

    def after_correction(self, *, instant: int, elapsed: int) -> "ClockConfirmation | None":
        """None if the corrected time needs no confirmation."""
        reached = self.confirmed_at(elapsed)
        return self.needed_after(reached, instant=instant, elapsed=elapsed)
