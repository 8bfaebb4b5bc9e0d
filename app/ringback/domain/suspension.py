"""Suspensions of the machine: a laptop's sleep, a paused virtual machine.

    scheduling time   ─────────────────── asleep ───────────────────▶   counts the suspension
    monotonic time    ────────────────────┤├────────────────────────▶   does not
                                            resumed: the two are farther apart than before

So right after a resume every lease that is shorter than the suspension has run out, although its holder is alive and had no
moment to prolong it. Whoever voids leases waits until the holders have had one.
"""

from datetime import datetime
from typing import Final

from ringback.domain.clock import Clock

SUSPENSION_SECONDS_MIN: Final = 1.0
"""How far the two times must have come apart between two looks. Slewing moves them by 1 s a minute, and the janitor looks every
few seconds. A lease has 20 s left when its heartbeat is due, so what is shorter ends none."""


class SuspensionWatch:
    """Notices suspensions when it is asked. Those before it was made are none of its business."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_seconds = clock.now().timestamp() - clock.monotonic()
        """How far scheduling time was ahead of monotonic time at the last look."""
        self._resumed_at: float | None = None
        """By monotonic time; None until a suspension was noticed."""

    def has_been_awake(self, seconds: float, *, now: datetime) -> bool:
        """Whether the last suspension ended at least so long ago. `now` is the scheduling time that leases are judged by.

        A suspension between the reading of `now` and this call is not noticed, and need not be: `now` does not count it.
        """
        monotonic = self._clock.monotonic()
        ahead_seconds = now.timestamp() - monotonic
        if ahead_seconds - self._ahead_seconds >= SUSPENSION_SECONDS_MIN:
            self._resumed_at = monotonic
        self._ahead_seconds = ahead_seconds
        return self._resumed_at is None or monotonic - self._resumed_at >= seconds
