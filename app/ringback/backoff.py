"""Backoff: the pause before the next attempt grows with each failure in a row, up to a longest one.

Loops whose pause grows use this module, in the service and in an agent's process: it imports nothing of Ringback. It also reads
the pause that a server asks for (Retry-After), so that each reader takes the same header in the same way.
`domain.retry` has the published schedules of deliveries, which are lists of steps instead of a factor; they share the jitter.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

JITTER_FRACTION: Final = 0.2
"""Clients of one failed server that all wait for the same time would all return in the same moment."""
_EXPONENT_MAX: Final = 64
"""Keeps the power of a very long row of failures within a float; every pause has reached its longest value by then."""
RETRY_AFTER_SECONDS_MAX: Final = 10**10 - 1
"""A longer Retry-After counts as this, some 300 years. Each reader shortens it to the longest pause of its own."""
_DELAY_DIGITS_MAX: Final = len(str(RETRY_AFTER_SECONDS_MAX))


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


def parse_retry_after(value: str | None, *, now: datetime | None) -> float | None:
    """Seconds from a Retry-After header (RFC 9110 §10.2.3: delay or date); None if absent or invalid.

    At most `RETRY_AFTER_SECONDS_MAX`. A date may have any of the three forms of §5.6.7. The asctime form names no zone and
    means UTC. Without `now`, a date counts as invalid: Ringback itself sends a delay.
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return _parse_delay(text)
    if now is None:
        return None
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - commands start without it, and few servers send a date

    try:
        instant = parsedate_to_datetime(text)
        aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
        return min(max(0.0, (aware - now).total_seconds()), RETRY_AFTER_SECONDS_MAX)
    except (ValueError, TypeError, OverflowError):
        return None


def _parse_delay(digits: str) -> float:
    """The seconds. The value comes from a foreign server, so no more digits are converted than the longest delay has."""
    significant = digits.lstrip("0")
    return float(significant or "0") if len(significant) <= _DELAY_DIGITS_MAX else float(RETRY_AFTER_SECONDS_MAX)
