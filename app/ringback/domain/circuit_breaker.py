"""A breaker: stops sending to what does not take it, and finds out with one attempt at a time when it does again.

    closed ──(so many failures in a row)──▶ open ──(pause over)──▶ half open ──(success)──▶ closed
      ▲                                      ▲                         │
      └── any success                        └──── failure, a longer pause

While it is open nothing is sent, and nothing that waits is charged for it: a pause burns no attempts. When the pause is over,
one delivery goes as a probe. There are two kinds: of a webhook, which counts every failure, and of an origin (scheme, host and
port), which counts only failures to reach it at all and stands for every webhook there.

A look-up that failed (`Category.LOOK_UP_FAILED`) may be our own name servers' fault. The breaker of an origin does not count
it, because that would stop webhooks of others. The breaker of a webhook does: it spreads attempts that cannot succeed.

What has failed, or has never answered, gets one attempt at a time even before its breaker opens (`health.trusted`): a thousand
receivers that hang hold a thousand attempts, and not thirty times as many.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from ringback.domain.backoff import add_jitter
from ringback.domain.clock import seconds
from ringback.domain.delivery import AttemptCategory
from ringback.domain.retry import HOUR, MINUTE


class CircuitState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    failures: int = 0
    """In a row; any success begins anew."""
    openings: int = 0
    """Times that it opened in this row of failures: each pause is longer than the last."""
    paused_until: datetime | None = None

    def state(self, now: datetime) -> CircuitState:
        if self.paused_until is None:
            return CircuitState.CLOSED
        return CircuitState.OPEN if now < self.paused_until else CircuitState.HALF_OPEN


CLOSED_BREAKER: Final = CircuitBreaker()


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    failures_to_open: int
    open_seconds_steps: tuple[float, ...]
    """The last one repeats."""


OPEN_SECONDS_STEPS: Final = (15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE)
"""The first is longer than an attempt (10 s), so that what was out when the breaker opened is back before the probe goes. The
last is how late a receiver that came back is noticed. None is longer than the step of a ladder at which it can come, so a
delivery that is alone is never later than its ladder says."""

WEBHOOK_BREAKER_POLICY: Final = BreakerPolicy(failures_to_open=5, open_seconds_steps=OPEN_SECONDS_STEPS)
ORIGIN_BREAKER_POLICY: Final = BreakerPolicy(failures_to_open=10, open_seconds_steps=OPEN_SECONDS_STEPS[:-1])
"""More failures and shorter pauses than a webhook's: it speaks for webhooks that may have nothing to do with each other."""
SUSPENDED_BREAKER_POLICY: Final = BreakerPolicy(failures_to_open=1, open_seconds_steps=(HOUR,))
"""A receiver that was silent for days is asked once an hour."""

UNREACHABLE_CATEGORIES: Final = frozenset(
    {
        AttemptCategory.NAME_NOT_FOUND,
        AttemptCategory.CONNECTION_REFUSED,
        AttemptCategory.TIMEOUT,
        AttemptCategory.TLS_ERROR,
    }
)
"""Nobody answered: what an origin's breaker counts. An answer, whatever it says, shows that the origin is there. A look-up that
failed shows neither, and leaves the origin's breaker as it is."""


def breaker_after_failure(
    breaker: CircuitBreaker, policy: BreakerPolicy, *, now: datetime, random_fraction: float
) -> CircuitBreaker:
    """The breaker after an attempt that failed. `chance` is uniform in [0, 1) and jitters the pause by ±20 %.

    What fails while it is open was sent before it opened, and makes no pause longer.
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
