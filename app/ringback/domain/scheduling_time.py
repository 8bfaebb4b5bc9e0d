"""Scheduling time: the wall clock without its steps.

    wall clock  ────╮ set back an hour        scheduling ──────────────────────  goes on, and loses 1 s a minute
                    ╰──────────────────       until the two meet again

Leases, due dates, deadlines and expiries are written and compared in it, so that a clock that somebody corrects neither delays
what is due by an hour nor ends what has a day left. It starts at the wall clock's time, goes with the machine's own count of
elapsed time, and approaches the wall clock by at most `1 / SLEW_DIVISOR` of what has elapsed: it never goes backwards, and an
hour of it is between 59 and 61 minutes. What is compared with other machines (signatures, access tokens, HTTP dates) is wall
time.
"""

from typing import Final, NamedTuple

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
