"""Limits the attempts at a receiver that comes back from an outage, so that its backlog arrives gently.

    outage ends ─▶ attempts in flight   1, and one more for each response: a receiver that is still slow gets few at once;
                                        of each principal, unless so many had no response that the origin's breaker opened
                   attempts a second    RATE_FACTOR times the origin's highest recent rate (`origin_rates`), or the floor
                   the backlog is gone  nothing has waited for these limits for BACKLOG_GONE_SECONDS: they end

The receiver's owner sees at most twice the usual load. The user who waits gets the backlog of an hour within some 100 minutes,
and a small backlog at once. The rate grows with that of new callbacks. It grows in any case once the backlog has lasted twice
as long as the outage: otherwise a receiver that was away in a quiet night could be behind all day.

An outage has ended when the breaker of an origin closes, of a principal there, or of a webhook. The failures of a webhook or a
principal are those of its origin if this process has delivered nothing else there meanwhile. Then all webhooks of the origin
share one limit, and its principals take turns. If other webhooks of the origin were delivered, only the webhook itself is
limited: it delays no others.

Everything here is in memory and lost by a restart. A process that does not know an origin's rate, as after a restart during
the outage, begins with the lowest rate and raises it by as much every ten seconds. After a restart during the backlog, only the
limits of `concurrency_limiter` hold. On many nodes each has the rate that it had itself, so together they keep the limit.
"""

import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

from ringback.domain.ids import WebhookId
from ringback.domain.principal import Principal
from ringback.domain.rate_limiter import RateLimit, RateLimiter, TokenBucket
from ringback.domain.webhook import Webhook
from ringback.notifier.origin_rates import TRACKED_ORIGINS_MAX, WINDOW_SECONDS, OriginRates
from ringback.notifier.permits import Permit, split_breaker_key

K = TypeVar("K")
V = TypeVar("V")

RATE_FACTOR: Final = 1.6
"""Times the rate before the outage. With a burst, no second has more than twice that rate: 1.6 * (1 + BURST_SECONDS)."""
FLOOR_PER_SECOND: Final = 50.0
"""The lowest rate, which any receiver of HTTP handles. As many are sent at once: a backlog of fifty takes a few round trips."""
BATCH_SECONDS: Final = 0.05
"""The permits of this period are given together: one lease query and one commit for all, instead of one for each attempt."""
BURST_SECONDS: Final = 0.25
"""How late the dispatcher may be without losing permits, at a rate above the lowest."""
CLOCK_RESOLUTION_SECONDS: Final = 0.001
"""A lease query after a shorter wait would find no more permits."""
BACKLOG_GONE_SECONDS: Final = 20.0
"""Twice the longest attempt: one attempt in flight at a slow receiver asks for the next permit at its end."""
STEADY_FACTOR: Final = 2.0
"""The rate grows once the backlog has lasted so many times as long as the outage. At a steady rate of new callbacks a backlog
lasts 1.7 times as long, because the new ones take 1 of `RATE_FACTOR`."""
STEADY_SECONDS_MIN: Final = WINDOW_SECONDS
"""Also after an outage whose beginning this process does not know."""


@dataclass(slots=True)
class _Recovery:
    """The recovery of an origin, or of one webhook."""

    began_at: float
    steady_seconds: float
    """How long the rate does not grow by itself."""
    limited_at: float
    """When an attempt last had to wait because of it."""
    is_of_origin: bool
    """Whether the origin's own breaker has closed: many principals had no response."""
    waits_for_rate: bool = False
    """Whether the rate refused the last permit that was asked for."""
    responses: int = 0
    turns: dict[Principal, int] = field(default_factory=dict[Principal, int])
    """When each principal had its last permit, in a count of permits."""
    permits: int = 0


class _Outage(NamedTuple):
    """Of a webhook whose breaker has opened."""

    key: str
    """Its origin, or the webhook itself."""
    began_at: float
    last_success_at: float


class BacklogLimiter:
    def __init__(self) -> None:
        self._rates = OriginRates()
        self._outages: dict[WebhookId, _Outage] = {}
        self._opened_at: dict[str, float] = {}
        """When this process first saw the open breaker of a principal at an origin, by its key."""
        self._recoveries: dict[str, _Recovery] = {}
        self._rate_limiter: RateLimiter[str] = RateLimiter()

    # -- outages --

    def follow_outage(self, webhook: Webhook, origin: str, *, now: datetime) -> None:
        """Compare the webhook with what was read of it before. Its recovery begins once its breaker is closed again."""
        if webhook.breaker.openings:
            self._outages.pop(webhook.id, None)
            self._outages[webhook.id] = self._find_outage(webhook, origin, now=now)
            _keep_newest(self._outages)
        elif (outage := self._outages.pop(webhook.id, None)) is not None and outage.key in (origin, webhook.id):
            recovery = self._get_recovery(outage.key, now.timestamp())
            if recovery is None or recovery.began_at < outage.began_at:
                self._begin_recovery(outage.key, outage.last_success_at, now.timestamp(), is_of_origin=False)

    def follow_breaker(self, key: str, *, is_open: bool, now: datetime) -> None:
        """The breaker of an origin, or of a principal there, is open or has closed: then the origin's recovery begins.

        A principal whose paths failed while others were delivered there slows none of them.
        """
        receiver = split_breaker_key(key)
        if is_open and receiver is not None:
            self._opened_at.setdefault(key, now.timestamp())
            _keep_newest(self._opened_at)
        elif not is_open:
            if receiver is None:
                self.begin_recovery(key, now=now)
            elif self._rates.get_last_success(receiver.origin) <= self._opened_at.pop(key, math.inf):
                self._begin_recovery_of_principal(receiver.origin, now=now)

    def begin_recovery(self, origin: str, *, now: datetime) -> None:
        """An earlier recovery, which has failed then, begins anew."""
        self._begin_recovery(origin, self._rates.get_last_success(origin), now.timestamp(), is_of_origin=True)

    def _begin_recovery_of_principal(self, origin: str, *, now: datetime) -> None:
        recovery = self._get_recovery(origin, now.timestamp())
        if recovery is None or not recovery.is_of_origin:
            self._begin_recovery(origin, self._rates.get_last_success(origin), now.timestamp(), is_of_origin=False)

    def _find_outage(self, webhook: Webhook, origin: str, *, now: datetime) -> _Outage:
        began_at = (webhook.failing_since or now).timestamp()
        last_success_at = self._rates.get_last_success(origin)
        if last_success_at > began_at:
            return _Outage(webhook.id, began_at, -math.inf)
        return _Outage(origin, began_at, last_success_at)

    def _begin_recovery(self, key: str, last_success_at: float, now: float, *, is_of_origin: bool) -> None:
        self._end_recoveries(now)
        outage_seconds = now - last_success_at if last_success_at > -math.inf else 0.0
        steady_seconds = max(STEADY_SECONDS_MIN, STEADY_FACTOR * outage_seconds)
        self._recoveries.pop(key, None)
        recovery = self._recoveries[key] = _Recovery(now, steady_seconds, now, is_of_origin)
        self._get_bucket(key, recovery, now).full_at = now
        _keep_newest(self._recoveries)

    # -- permits --

    @property
    def is_idle(self) -> bool:
        """Whether no receiver recovers: the usual case, in which a permit costs one check of this."""
        return not self._recoveries

    def limit_permits(self, key: str, permits: int, in_flight: int, *, now: datetime) -> int:
        """At most `permits`: how many more attempts the origin or webhook may have in flight."""
        instant = now.timestamp()
        recovery = self._get_recovery(key, instant)
        if recovery is None or permits <= 0:
            return permits
        bucket = self._get_bucket(key, recovery, instant)
        tokens = bucket.available_permits(instant)
        recovery.waits_for_rate = tokens < _tokens_at_once(bucket)
        permits = 0 if recovery.waits_for_rate else min(permits, 1 + recovery.responses - in_flight, tokens)
        if permits <= 0:
            recovery.limited_at = instant
        return permits

    def limits_each_principal(self, origin: str) -> bool:
        """Whether each principal's attempts in flight at the origin count for itself: what hangs delays no other's."""
        recovery = self._recoveries.get(origin)
        return recovery is not None and not recovery.is_of_origin

    def waits_for_rate(self, permit: Permit) -> bool:
        """Whether a released permit allows no further attempt yet, because the rate does not: see `seconds_until_permit`."""
        keys = (permit.receiver_key.origin, permit.webhook_id) if self._recoveries else ()
        return any(key in self._recoveries and self._recoveries[key].waits_for_rate for key in keys)

    def consume_permit(self, permit: Permit, *, now: datetime, count: int = 1) -> None:
        instant, (principal, origin) = now.timestamp(), permit.receiver_key
        if origin not in self._recoveries:
            self._rates.count_callbacks(origin, instant, count)
        for key in (origin, permit.webhook_id) if self._recoveries else ():
            if (recovery := self._get_recovery(key, instant)) is not None:
                self._get_bucket(key, recovery, instant).consume_permit(instant, count)
                recovery.permits += 1
                recovery.turns[principal] = recovery.permits

    def refund_permit(self, permit: Permit, count: int = 1) -> None:
        """Return permits that were consumed and not used."""
        origin = permit.receiver_key.origin
        if origin not in self._recoveries:
            self._rates.uncount_callbacks(origin, count)
        for key in (origin, permit.webhook_id):
            if key in self._recoveries:
                self._rate_limiter.refund_permit(key, count)

    def get_turn(self, webhook: Webhook, origin: str) -> int:
        """The principal with the lowest number is the next to get a permit of an origin that recovers."""
        recovery = self._recoveries.get(origin)
        return 0 if recovery is None else recovery.turns.get(webhook.principal, 0)

    def seconds_until_permit(self, *, now: datetime) -> float | None:
        """When a receiver that has used up its rate has permits again; None if there is none."""
        instant, waits = now.timestamp(), list[float]()
        self._end_recoveries(instant)
        for key, recovery in self._recoveries.items():
            if recovery.waits_for_rate:
                bucket = self._get_bucket(key, recovery, instant)
                wait = bucket.wait_seconds(instant, _tokens_at_once(bucket))
                recovery.waits_for_rate = wait > 0  # or else the next lease query finds out whether it still waits
                waits.append(max(CLOCK_RESOLUTION_SECONDS, wait))
        return min(waits, default=None)

    # -- what happens at the receivers --

    def count_new_delivery(self, origin: str, *, now: datetime) -> None:
        """Count the rate of new callbacks while the attempts are those of a backlog."""
        if origin in self._recoveries:
            self._rates.count_callbacks(origin, now.timestamp())

    def note_response(self, permit: Permit, *, is_success: bool, now: datetime) -> None:
        if is_success:
            self._rates.note_success(permit.receiver_key.origin, now.timestamp())
        for key in (permit.receiver_key.origin, permit.webhook_id) if self._recoveries else ():
            if key in self._recoveries:
                self._recoveries[key].responses += 1

    def _get_recovery(self, key: str, now: float) -> _Recovery | None:
        recovery = self._recoveries.get(key)
        if recovery is not None and _is_over(recovery, now):
            del self._recoveries[key]
            return None
        return recovery

    def _end_recoveries(self, now: float) -> None:
        for key in [key for key, recovery in self._recoveries.items() if _is_over(recovery, now)]:
            del self._recoveries[key]

    def _get_bucket(self, key: str, recovery: _Recovery, now: float) -> TokenBucket:
        usual = RATE_FACTOR * self._rates.get_highest(key)
        per_second = max(FLOOR_PER_SECOND, usual) * max(1.0, (now - recovery.began_at) / recovery.steady_seconds)
        burst = max(FLOOR_PER_SECOND if usual <= FLOOR_PER_SECOND else 0.0, per_second * BURST_SECONDS)
        return self._rate_limiter.get_bucket(key, RateLimit(per_second=per_second, burst=burst), now=now)


def _tokens_at_once(bucket: TokenBucket) -> int:
    return max(1, int(bucket.limit.per_second * BATCH_SECONDS))


def _is_over(recovery: _Recovery, now: float) -> bool:
    return abs(now - recovery.limited_at) > BACKLOG_GONE_SECONDS


def _keep_newest(tracked: dict[K, V]) -> None:
    if len(tracked) > TRACKED_ORIGINS_MAX:
        del tracked[next(iter(tracked))]
