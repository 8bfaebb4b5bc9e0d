"""Decides which webhooks may be sent to now: the concurrency limits, rate limits and circuit breakers of one process.

    permits of a webhook = the minimum of
        in_flight_max (2048)     minus all attempts in flight
        per_receiver_max (32)    minus those of the same principal and origin
        per_origin_max (128)     minus those of the same origin
        0                        while the bodies of the principal's attempts have principal_body_bytes_max (32 MiB) or more
        1                        minus those of the webhook, if it is new or failing
        1                        minus those of the same origin, or of the same principal and origin, if that is probed
        its rate limit           see `domain.rate_limiter`
        those of its backlog     after an outage of the webhook or origin, see `backlog_limiter`
        0                        while its circuit breaker, that of its principal and origin, or that of its origin is open

All of this is in memory. The store keeps the circuit breakers, and on several nodes also the rate limits; the dispatcher copies
them from there. So a rate limit holds for all nodes together. The other limits hold for each node: N nodes may have N times as
many attempts in flight, and N probes of a failing webhook. A breaker of an origin that one node opens is closed at another node
until its next query for that origin, or the end of its first failed attempt there: at most `per_origin_max` attempts.
One that another node closes is open here until the next query for that origin: while deliveries wait for it, there is one after
`RECHECK_AFTER_SECONDS` at most, and later if thousands of webhooks wait. One principal's thousands delay its own checks only.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from ringback.domain.circuit_breaker import CircuitBreaker, CircuitState
from ringback.domain.clock_confirmation import STEP_BACK_SECONDS_MIN
from ringback.domain.ids import WebhookId
from ringback.domain.principal import Principal
from ringback.domain.rate_limiter import RateLimit, RateLimiter, TokenBucket
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_health import is_healthy
from ringback.notifier.backlog_limiter import BacklogLimiter
from ringback.notifier.known_breakers import KnownBreakers
from ringback.notifier.permits import Permit, ReceiverKey

Key = TypeVar("Key")

RECHECK_AFTER_SECONDS: Final = 10.0
"""A webhook without permits is read from the store again after this time, because its owner may have changed it."""
RECHECKS_PER_SECOND: Final = 100.0
"""If more than a thousand wait, they are read so much later that principals with many have no more reads in a second together.
Those with few have as many again. While a receiver is away that ten thousand webhooks share, nothing changes for most."""
BLOCKED_RECHECK_SECONDS: Final = 1.0
"""An ordered webhook whose due deliveries all wait behind a delivery that is not due is queried again after this time. So is a
webhook whose rate another node was using."""

SENDABLE_STATES: Final = frozenset({WebhookState.ACTIVE, WebhookState.SUSPENDED})


def accepts_attempts(webhook: Webhook) -> bool:
    """Whether deliveries to the webhook may be sent, as far as its state and its owner say."""
    return webhook.state in SENDABLE_STATES and webhook.paused_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyLimits:
    in_flight_max: int = 2048
    """Attempts, with one socket each: twice the thousand receivers that may hang at once with one attempt each."""
    per_receiver_max: int = 32
    """Attempts of one principal to one origin: a slow receiver must not use up the permits of other principals."""
    per_origin_max: int = 128
    """Attempts of all principals to one origin: a receiver that many use must not be flooded."""
    principal_body_bytes_max: int = 32 * 1024 * 1024
    """Bodies of one principal's attempts, in memory until the attempts are recorded: 128 of the largest. Receivers that read
    nothing, at many origins, must not fill the memory of the process. What one lease reads may be beyond it, and one body of
    each transaction that inserts deliveries."""


@dataclass(frozen=True, slots=True)
class _WaitingWebhook:
    webhook: Webhook
    receiver_key: ReceiverKey
    marked_at: float
    """In seconds since 1970, as the next two: a lease query compares those of all waiting webhooks."""
    recheck_at: float
    paused_until: float
    """By its own breaker; 0 if it is not open."""
    is_blocked: bool


class ConcurrencyLimiter:
    def __init__(self, limits: ConcurrencyLimits) -> None:
        self.backlogs = BacklogLimiter()
        self._limits = limits
        self._in_flight_by_webhook: Counter[WebhookId] = Counter()
        self._in_flight_by_receiver: Counter[ReceiverKey] = Counter()
        self._in_flight_by_origin: Counter[str] = Counter()
        self._in_flight = 0
        self._body_bytes_by_principal: Counter[Principal] = Counter()
        self._origin_breakers = KnownBreakers()
        self._rate_limiter: RateLimiter[WebhookId] = RateLimiter()
        self._waiting: dict[WebhookId, _WaitingWebhook] = {}
        self._waiting_by_origin: Counter[str] = Counter()
        self._waiting_by_receiver: Counter[ReceiverKey] = Counter()
        self._waiting_by_principal: Counter[Principal] = Counter()

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def free_permits(self) -> int:
        return self._limits.in_flight_max - self._in_flight

    # -- permits --

    def available_permits(self, webhook: Webhook, origin: str, *, now: datetime) -> int:
        """How many more attempts the webhook may have in flight."""
        key = ReceiverKey(webhook.principal, origin)
        permits = self._permits_of_receiver(key)
        if permits <= 0 or not accepts_attempts(webhook) or self._is_paused(webhook, key, now):
            return 0
        if not is_healthy(webhook):
            permits = min(permits, 1 - self._in_flight_by_webhook[webhook.id])
        if self._origin_breakers:
            permits = min(permits, self._probe_permits(key))
        if (bucket := self._get_rate_bucket(webhook, now=now)) is not None:
            permits = min(permits, bucket.available_permits(now.timestamp()))
        if not self.backlogs.is_idle:
            is_shared = not self.backlogs.limits_each_principal(origin)
            in_flight = self._in_flight_by_origin[origin] if is_shared else self._in_flight_by_receiver[key]
            permits = self.backlogs.limit_permits(origin, permits, in_flight, now=now)
            in_flight = self._in_flight_by_webhook[webhook.id]
            permits = self.backlogs.limit_permits(webhook.id, permits, in_flight, now=now)
        return max(0, permits)

    def _permits_of_receiver(self, key: ReceiverKey) -> int:
        """The permits that all webhooks of a receiver share: at most so many for one of them."""
        if self._has_full_bodies(key.principal):
            return 0
        return min(
            self.free_permits(),
            self._limits.per_receiver_max - self._in_flight_by_receiver[key],
            self._limits.per_origin_max - self._in_flight_by_origin[key.origin],
        )

    def _probe_permits(self, key: ReceiverKey) -> int:
        """One for a principal or an origin that is probed after a pause; as many as others allow if neither is."""
        permits = self._limits.per_receiver_max
        if self._is_probed(key.origin):
            permits = min(permits, 1 - self._in_flight_by_origin[key.origin])
        if self._is_probed(key.breaker_key):
            permits = min(permits, 1 - self._in_flight_by_receiver[key])
        return permits

    def _has_full_bodies(self, principal: Principal) -> bool:
        return self._body_bytes_by_principal[principal] >= self._limits.principal_body_bytes_max

    def acquire_permit(self, webhook: Webhook, origin: str, *, now: datetime, count: int = 1) -> Permit:
        """Count so many attempts as in flight. All of one webhook have equal permits; each is released by itself."""
        permit = Permit(webhook.id, ReceiverKey(webhook.principal, origin))
        self._count_permit(permit, count)
        if (bucket := self._get_rate_bucket(webhook, now=now)) is not None:
            bucket.consume_permit(now.timestamp(), count)
        self.backlogs.consume_permit(permit, now=now, count=count)
        return permit

    def count_body(self, permit: Permit, body: bytes) -> Permit:
        """The permit with the body of its attempt, which counts until this permit is released."""
        _add_to_counter(self._body_bytes_by_principal, permit.receiver_key.principal, len(body))
        return Permit(permit.webhook_id, permit.receiver_key, len(body))

    def discount_body(self, permit: Permit) -> None:
        """The delivery was not inserted. Its permit is cancelled as one without a body."""
        _add_to_counter(self._body_bytes_by_principal, permit.receiver_key.principal, -permit.body_bytes)

    def release_permit(self, permit: Permit) -> bool:
        """Release the permit; True if a webhook may be waiting for it."""
        principal = permit.receiver_key.principal
        was_full, had_full_bodies = self.free_permits() <= 0, self._has_full_bodies(principal)
        self._count_permit(permit, -1)
        was_full = was_full or (had_full_bodies and not self._has_full_bodies(principal))
        waiting = self._waiting.get(permit.webhook_id)
        if waiting is not None and waiting.is_blocked:
            self.clear_waiting(permit.webhook_id)  # its other deliveries may have waited for the one that just ended
        is_wanted = waiting is not None or permit.receiver_key.origin in self._waiting_by_origin
        return (is_wanted and not self.backlogs.waits_for_rate(permit)) or (was_full and bool(self._waiting))

    def cancel_permit(self, webhook: Webhook, permit: Permit) -> None:
        """Release the permit of an attempt that is not made, because its transaction was rolled back."""
        self.release_permit(permit)
        self._refund(webhook, permit, 1)

    def give_back_permits(self, webhook: Webhook, permit: Permit, count: int) -> None:
        """Return what was acquired before the store said how many deliveries are due. A waiting webhook goes on waiting."""
        self._count_permit(permit, -count)
        self._refund(webhook, permit, count)

    def _refund(self, webhook: Webhook, permit: Permit, count: int) -> None:
        self._rate_limiter.refund_permit(webhook.id, count)
        self.backlogs.refund_permit(permit, count)

    def _get_rate_bucket(self, webhook: Webhook, *, now: datetime) -> TokenBucket | None:
        rate = webhook.rate_per_second
        if rate is None:
            return None
        limit, instant = RateLimit(per_second=rate, burst=max(1, int(rate))), now.timestamp()
        bucket = self._rate_limiter.get_bucket(webhook.id, limit, now=instant)
        if bucket.full_at - instant > STEP_BACK_SECONDS_MIN:
            bucket.full_at = instant  # permits were consumed by a clock that was far ahead
        return bucket

    def get_rate_full_at(self, webhook: Webhook, *, now: datetime) -> float:
        """When the webhook's token bucket is full again, in seconds since 1970."""
        bucket = self._get_rate_bucket(webhook, now=now)
        return 0.0 if bucket is None else bucket.full_at

    def set_rate_full_at(self, webhook: Webhook, full_at: float, *, now: datetime) -> None:
        """Replace the state of the bucket by that of the store, which has what other nodes consumed."""
        if (bucket := self._get_rate_bucket(webhook, now=now)) is not None:
            bucket.full_at = full_at

    # -- circuit breakers --

    def update_origin_breakers(self, breakers: Mapping[str, CircuitBreaker], *, now: datetime) -> None:
        """Replace the breakers of these origins, or `ReceiverKey.breaker_key`s, by those read from the store or written."""
        for key, breaker in breakers.items():
            before = self._origin_breakers.replace(key, breaker)
            if breaker.openings or before.openings:
                self.backlogs.follow_breaker(key, is_open=breaker.openings > 0, now=now)

    def has_failed_origin(self, key: str) -> bool:
        """Whether the origin, or the principal there, has failed and no attempt has had a response since."""
        return key in self._origin_breakers

    def get_probe_turn(self, webhook: Webhook, origin: str) -> tuple[int, int]:
        """The lowest turn probes the origin: a webhook of the principal with the fewest failures, a healthy one if it has one.

        Each failed probe is one more failure of its principal, so principals take turns.
        """
        key = ReceiverKey(webhook.principal, origin)
        if not self._is_probed(origin) and not self._is_probed(key.breaker_key):
            return 0, 0
        failures = self._origin_breakers.get(key.breaker_key).failures
        return failures, 0 if is_healthy(webhook) else 1 if webhook.failing_since is None else 2

    def _is_probed(self, key: str) -> bool:
        """Whether one attempt at a time goes there: the breaker is half-open, if it is not open."""
        return self._origin_breakers.get(key).paused_until is not None

    def is_paused(self, webhook: Webhook, origin: str, *, now: datetime) -> bool:
        return self._is_paused(webhook, ReceiverKey(webhook.principal, origin), now)

    def _is_paused(self, webhook: Webhook, key: ReceiverKey, now: datetime) -> bool:
        return webhook.breaker.state(now) is CircuitState.OPEN or self._is_receiver_paused(key, now)

    def _is_receiver_paused(self, key: ReceiverKey, now: datetime) -> bool:
        if not self._origin_breakers:
            return False
        breakers = map(self._origin_breakers.get, (key.origin, key.breaker_key))
        return any(breaker.state(now) is CircuitState.OPEN for breaker in breakers)

    # -- webhooks with due deliveries and without permits --

    def mark_waiting(self, webhook: Webhook, origin: str, *, now: datetime, is_blocked: bool = False) -> None:
        self.clear_waiting(webhook.id)
        recheck_seconds = BLOCKED_RECHECK_SECONDS if is_blocked else self._seconds_until_recheck(webhook.principal)
        is_open = webhook.breaker.state(now) is CircuitState.OPEN
        paused_until = webhook.breaker.paused_until if is_open else None
        key = ReceiverKey(webhook.principal, origin)
        self._waiting[webhook.id] = _WaitingWebhook(
            webhook,
            key,
            marked_at=now.timestamp(),
            recheck_at=now.timestamp() + recheck_seconds,
            paused_until=0.0 if paused_until is None else paused_until.timestamp(),
            is_blocked=is_blocked,
        )
        self._waiting_by_origin[origin] += 1
        self._waiting_by_receiver[key] += 1
        self._waiting_by_principal[key.principal] += 1

    def _seconds_until_recheck(self, principal: Principal) -> float:
        """Every waiting principal has an equal share of the checks. One that has few webhooks does not wait for all others."""
        own = self._waiting_by_principal[principal] + 1
        principals = len(self._waiting_by_principal) + (own == 1)
        return max(RECHECK_AFTER_SECONDS, min(len(self._waiting), own * principals) / RECHECKS_PER_SECOND)

    def clear_waiting(self, webhook_id: WebhookId) -> None:
        if (waiting := self._waiting.pop(webhook_id, None)) is not None:
            _add_to_counter(self._waiting_by_origin, waiting.receiver_key.origin, -1)
            _add_to_counter(self._waiting_by_receiver, waiting.receiver_key, -1)
            _add_to_counter(self._waiting_by_principal, waiting.receiver_key.principal, -1)

    def is_waiting(self, webhook_id: WebhookId) -> bool:
        """Whether older deliveries of this webhook wait for permits."""
        return webhook_id in self._waiting

    def webhooks_without_permits(self, *, now: datetime) -> set[WebhookId]:
        """The waiting webhooks that still have no permits; the lease query skips them.

        While a receiver that thousands of webhooks share is away, most of them are skipped without a look at their limits.
        """
        instant = now.timestamp()
        latest = instant + STEP_BACK_SECONDS_MIN  # a later instant is of a clock that was far ahead
        for webhook_id in [
            each
            for each, waiting in self._waiting.items()
            if waiting.recheck_at <= instant or waiting.marked_at >= latest
        ]:
            self.clear_waiting(webhook_id)
        stopped = {
            key
            for key in self._waiting_by_receiver  # often all of them
            if self._permits_of_receiver(key) <= 0 or self._is_receiver_paused(key, now)
        }
        return {
            webhook_id
            for webhook_id, waiting in self._waiting.items()
            if waiting.is_blocked
            or waiting.paused_until > instant
            or waiting.receiver_key in stopped
            or self.available_permits(waiting.webhook, waiting.receiver_key.origin, now=now) == 0
        }

    def _count_permit(self, permit: Permit, change: int) -> None:
        self._in_flight += change
        _add_to_counter(self._in_flight_by_webhook, permit.webhook_id, change)
        _add_to_counter(self._in_flight_by_receiver, permit.receiver_key, change)
        _add_to_counter(self._in_flight_by_origin, permit.receiver_key.origin, change)
        if permit.body_bytes:
            _add_to_counter(self._body_bytes_by_principal, permit.receiver_key.principal, change * permit.body_bytes)


def _add_to_counter(counter: Counter[Key], key: Key, change: int) -> None:
    if count := counter.get(key, 0) + change:  # `counter[key]` calls a function of Python for a missing key
        counter[key] = count
    else:
        counter.pop(key, None)
