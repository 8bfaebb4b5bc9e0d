"""Suspensions of the machine (a laptop's sleep, a paused virtual machine), and freezes of the process (SIGSTOP).

    scheduling time   ─────────────────── asleep ───────────────────▶   counts the suspension
    monotonic time    ────────────────────┤├────────────────────────▶   does not
                                            resumed: the two are farther apart than before

A frozen process finds that one of its sleeps ended late; both times count the freeze. An outage of the store has the same
effect on leases as a freeze of each holder.

After a resume every lease shorter than the suspension has run out, although its holder is alive and could not extend it. The
janitor waits until the holders have had time to do so. So does a janitor that starts: its process may have waited for the end
of an outage, too.
"""

from datetime import datetime
from typing import Final

from ringback.domain.clock import Clock

SUSPENSION_SECONDS_MIN: Final = 1.0
"""How far the two times must have come apart between two looks. Slewing moves them by 1 s a minute, and the janitor looks every
few seconds. A lease has 20 s left when its heartbeat is due, so what is shorter ends none."""


FREEZE_SECONDS: Final = 5.0
"""A sleep that ends later than this was interrupted by a freeze. On a busy event loop it ends less than a second late."""


class SuspensionWatch:
    """Detects suspensions at each check, since it was made. Its user reports freezes and outages."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_seconds = clock.now().timestamp() - clock.monotonic()
        """How far scheduling time was ahead of monotonic time at the last look."""
        self._resumed_at: float | None = None
        """By monotonic time; None until a suspension was noticed."""

    def note_start(self) -> None:
        """The process has started, and knows nothing of an outage that may have ended just now. A restart changes nothing."""
        if self._resumed_at is None:
            self._resumed_at = self._clock.monotonic()

    def note_freeze(self) -> None:
        """This process was frozen until now."""
        self._resumed_at = self._clock.monotonic()

    def note_outage(self) -> None:
        """The store was unavailable until now: no holder could extend its lease."""
        self._resumed_at = self._clock.monotonic()

    def note_time(self, now: datetime) -> None:
        """Compare the scheduling time with the monotonic time. Call it every few seconds."""
        monotonic = self._clock.monotonic()
        ahead_seconds = now.timestamp() - monotonic
        if ahead_seconds - self._ahead_seconds >= SUSPENSION_SECONDS_MIN:
            self._resumed_at = monotonic
        self._ahead_seconds = ahead_seconds

    def has_been_awake(self, seconds: float, *, now: datetime) -> bool:
        """Whether the last suspension ended at least `seconds` ago. `now` is the scheduling time that leases are compared with.

        A suspension between the reading of `now` and this call is missed, which is safe: `now` does not count it.
        """
        self.note_time(now)
        return self._resumed_at is None or self._clock.monotonic() - self._resumed_at >= seconds
