"""Backoff: the pause before the next attempt grows with each failure in a row, up to a longest one.

Loops whose pause grows use this module, in the service and in an agent's process: it imports nothing of Ringback.
`domain.retry` has the published schedules of deliveries, which are lists of steps instead of a factor; they share the jitter.
"""

from dataclasses import dataclass
from typing import Final

JITTER_FRACTION: Final = 0.2
"""Clients of one failed server that all wait for the same time would all return in the same moment."""
_EXPONENT_MAX: Final = 64
"""Keeps the power of a very long row of failures within a float; every pause has reached its longest value by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    first_seconds: float
    longest_seconds: float
    factor: float = 2.0
    jitter_fraction: float = 0.0
    """0.2 spreads a pause evenly over ±20 %, the longest pause included."""

    def pause_seconds(self, failures: int, *, random_fraction: float = 0.5) -> float:
        """Seconds to wait after `failures` failures in a row, at least one. `random_fraction` is uniform in [0, 1)."""
        pause = self.first_seconds * self.factor ** min(failures - 1, _EXPONENT_MAX)
        return add_jitter(min(pause, self.longest_seconds), random_fraction, jitter_fraction=self.jitter_fraction)


ROUND_BACKOFF: Final = Backoff(first_seconds=0.05, longest_seconds=5.0)
"""The pause before a tools/call is sent again because its tool needs time and asks nothing (2026-07-28), in the service and in
the durable client. The SDK's client starts with the same pause; the longest one bounds the requests to a tool that takes hours.
"""


def add_jitter(seconds: float, random_fraction: float, *, jitter_fraction: float = JITTER_FRACTION) -> float:
    """`seconds`, moved by at most ±`jitter_fraction` of it. `random_fraction` is uniform in [0, 1)."""
    return seconds * (1 - jitter_fraction + 2 * jitter_fraction * random_fraction)
