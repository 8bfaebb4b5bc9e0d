"""A circuit breaker stops attempts to a receiver that fails, and probes it with one attempt after each pause.

    closed ──(failures in a row)─────────▶ open ──(pause over)──▶ half open ──(success)──▶ closed
      ▲                                      ▲                         │
      └── any success                        └──── failure, a longer pause

An open breaker sends nothing, and waiting deliveries lose no attempts. After the pause one delivery is sent as a probe. A
webhook's breaker counts every failure. The others count attempts without a response at an origin (scheme, host and port):

    breaker                     counts                                          stops
    of a principal at an origin each attempt of the principal                   the principal's webhooks there
    of an origin                one attempt of each principal, and each probe   all webhooks there

So a principal whose paths at an origin hang stops no other: the origin's breaker opens when that many principals have had no
response, and none has had one. Any response closes the breakers of its principal and its origin. A half-open origin is probed
by the principal with the fewest failures, with a healthy webhook if it has one.

A failure of ours (`attempt_category.OWN_FAILURES`: a failed look-up may be caused by our name servers) counts for no origin,
because that would stop webhooks of other principals. A webhook's breaker counts it, so that attempts that cannot succeed are
spread.

A webhook that failed last or has never answered gets one attempt at a time before its breaker opens
(`webhook_health.is_healthy`): a thousand receivers that hang hold a thousand attempts, not thirty times as many.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from ringback.backoff import add_jitter
from ringback.domain.clock import seconds
from ringback.domain.retry import BREAKER_PAUSE_SECONDS_MAX, HOUR, MINUTE

PAUSE_SECONDS_MAX: Final = 2 * HOUR
"""Longer than any pause with its jitter. A pause that ends later was begun by a clock that was far ahead, and is over."""


class CircuitState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    failures: int = 0
    """Failures in a row; a success resets the count."""
    openings: int = 0
    """How often the breaker opened in this row of failures. Each pause is longer than the last."""
    paused_until: datetime | None = None

    def state(self, now: datetime) -> CircuitState:
        if self.paused_until is None:
            return CircuitState.CLOSED
        is_pausing = now < self.paused_until <= now + seconds(PAUSE_SECONDS_MAX)
        return CircuitState.OPEN if is_pausing else CircuitState.HALF_OPEN


CLOSED_BREAKER: Final = CircuitBreaker()


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    failures_to_open: int
    open_seconds_steps: tuple[float, ...]
    """The last step repeats."""


OPEN_SECONDS_STEPS: Final = (15, 30, MINUTE, 2 * MINUTE, BREAKER_PAUSE_SECONDS_MAX)
"""The first pause is longer than an attempt (10 s), so attempts in flight end before the probe. The last pause is the longest
time until a receiver that recovered is noticed. No pause is longer than the step of a named schedule at which it can occur;
schedules of owners leave time for it (`own_retry_schedule`). So a breaker delays no single delivery beyond its schedule."""

WEBHOOK_BREAKER_POLICY: Final = BreakerPolicy(failures_to_open=5, open_seconds_steps=OPEN_SECONDS_STEPS)
ORIGIN_BREAKER_POLICY: Final = BreakerPolicy(failures_to_open=10, open_seconds_steps=OPEN_SECONDS_STEPS[:-1])
"""Of an origin, and of a principal there. More failures and shorter pauses than a webhook's, because unrelated webhooks share
them."""
SUSPENDED_BREAKER_POLICY: Final = BreakerPolicy(failures_to_open=1, open_seconds_steps=(HOUR,))
"""A receiver that failed for days is probed once an hour."""

REQUESTED_PROBE_SPACING_SECONDS: Final = 15.0
"""An origin is probed upon request at most once in this time for all callers together: the first pause of its breaker, which is
longer than an attempt. So no owner can send more to an origin that others share than its breaker sends at the beginning."""


def half_opened(breaker: CircuitBreaker, *, now: datetime) -> CircuitBreaker:
    """The breaker with its pause ended, so that one attempt probes the receiver now. Another failure pauses it longer."""
    return replace(breaker, paused_until=now) if breaker.state(now) is CircuitState.OPEN else breaker


def counts_for_origin(at_origin: CircuitBreaker, of_principal: CircuitBreaker) -> bool:
    """Whether a principal's attempt without a response counts for the origin: its first in a row, or a probe of the origin.

    `of_principal` is the principal's breaker at the origin before the attempt.
    """
    return of_principal.failures == 0 or at_origin.openings > 0


def breaker_after_failure(
    breaker: CircuitBreaker, policy: BreakerPolicy, *, now: datetime, random_fraction: float
) -> CircuitBreaker:
    """The breaker after a failed attempt. `random_fraction` is uniform in [0, 1) and jitters the pause by ±20 %.

    A failure while the breaker is open belongs to an attempt sent before, and does not lengthen the pause.
    """
    failures = breaker.failures + 1
    if breaker.state(now) is CircuitState.OPEN:
        return CircuitBreaker(failures=failures, openings=breaker.openings, paused_until=breaker.paused_until)
    if breaker.openings == 0 and failures < policy.failures_to_open:
        return CircuitBreaker(failures=failures)
    open_seconds = policy.open_seconds_steps[min(breaker.openings, len(policy.open_seconds_steps) - 1)]
    return CircuitBreaker(
        failures=failures,
        openings=breaker.openings + 1,
        paused_until=now + seconds(add_jitter(open_seconds, random_fraction)),
    )
