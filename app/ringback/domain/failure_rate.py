"""The rate at which attempts to a subscription fail, in counters of one hour (mcp-events §8, deliveryStatus).

    no window ──failure──▶ counting ──an hour──▶ the next failure judges it: too high, or a new window begins
        ▲                      │
        └──────────────────────┘ more than 5 of at least 100 attempts succeeded, or the hour ends with a success

A window begins with a failure, so a receiver that works costs no writes. It is judged after its whole hour and not before,
because the successes before its first failure are not counted: a short outage must not look like an hour of failures.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ringback.domain.clock import seconds
from ringback.domain.retry import HOUR

WINDOW_SECONDS: Final = float(HOUR)
"""60 minutes, as the specification says."""
ATTEMPTS_MIN: Final = 100
"""Fewer attempts in the window say nothing, as the specification says."""
FAILURES_PERCENT_MAX: Final = 95
"""More failures than this are too many, as the specification says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRate:
    counted_since: datetime | None = None
    """When the window began; None without a window."""
    counted_attempts: int = 0
    counted_failures: int = 0

    @property
    def is_too_high(self) -> bool:
        """More than 95 % of at least 100 attempts failed."""
        return (
            self.counted_attempts >= ATTEMPTS_MIN
            and self.counted_failures * 100 > self.counted_attempts * FAILURES_PERCENT_MAX
        )


NO_FAILURES: Final = FailureRate()


def rate_after_attempt(rate: FailureRate, *, failed: bool, now: datetime) -> FailureRate:
    """The counters after an attempt. A failure after the window's hour begins a new window, unless the old one is too high."""
    if rate.counted_since is None or (_is_over(rate, now) and not (failed and rate.is_too_high)):
        return FailureRate(counted_since=now, counted_attempts=1, counted_failures=1) if failed else NO_FAILURES
    counted = FailureRate(
        counted_since=rate.counted_since,
        counted_attempts=rate.counted_attempts + 1,
        counted_failures=rate.counted_failures + failed,
    )
    return NO_FAILURES if counted.counted_attempts >= ATTEMPTS_MIN and not counted.is_too_high else counted


def exceeds_failure_rate(rate: FailureRate, *, now: datetime) -> bool:
    """Whether a whole window has passed in which too many attempts failed."""
    return rate.counted_since is not None and _is_over(rate, now) and rate.is_too_high


def _is_over(rate: FailureRate, now: datetime) -> bool:
    return rate.counted_since is not None and now - rate.counted_since >= seconds(WINDOW_SECONDS)
