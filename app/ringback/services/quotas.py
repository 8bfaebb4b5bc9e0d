"""Quotas: how much one principal may have at once, so that one who runs wild does not take the service from the others.

What is a row is counted in the transaction that would add one, so a quota cannot be overrun by many at once. Streams and the
rate of starts are counted in this process; several nodes count for themselves.
"""

import math
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.errors import QuotaExceeded
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.rate_limiter import RateLimit, RateLimiter

ROW_QUOTA_RETRY_AFTER_SECONDS: Final = 30
"""Nobody knows when rows that are in the way will go; this is soon enough to be there in time, and seldom enough."""
STREAM_RETRY_AFTER_SECONDS: Final = 5
"""A stream that was lost is noticed by its next frame, at the latest after a heartbeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Each for one principal. The defaults are for a busy agent back end; who meets one has a bug, or a reason to ask."""

    open_calls: int = 10_000
    """Queued and running: as many as one process is meant to hold of all principals together."""
    result_bytes: int = 1024**3
    """Of stored results. A result is never refused; new calls are, while older results take up all the room."""
    webhooks: int = 1_000
    """Registered ones: a webhook that comes with a call ends with it, and is bounded by the calls."""
    streams: int = 100
    starts_per_minute: int = 60_000
    """Requests that start work: calls, tests, replays. A thousand a second is met only by a loop gone wild."""


class QuotaEnforcer:
    def __init__(self, quotas: Quotas, *, clock: Clock) -> None:
        self._quotas = quotas
        self._clock = clock
        self._start_limit = RateLimit(per_second=quotas.starts_per_minute / 60, burst=quotas.starts_per_minute)
        self._starts: RateLimiter[Principal] = RateLimiter()
        self._streams: Counter[Principal] = Counter()

    async def require_call_quota(self, tx: Transaction, principal: Principal) -> None:
        """Raise `QuotaExceeded` unless one more call, and in the end its result, may be kept."""
        used = await tx.usage.get_usage(principal)
        if used.open_calls >= self._quotas.open_calls:
            raise _quota_exceeded("open_calls", self._quotas.open_calls, "Wait for some to end, or cancel some.")
        if used.result_bytes >= self._quotas.result_bytes:
            raise _quota_exceeded("result_bytes", self._quotas.result_bytes, "Stored results go when they expire.")

    async def require_webhook_quota(self, tx: Transaction, principal: Principal) -> None:
        registered = await tx.usage.count_webhooks(principal, limit=self._quotas.webhooks)
        if registered >= self._quotas.webhooks:
            raise _quota_exceeded("webhooks", self._quotas.webhooks, "Remove some: DELETE /v1/webhooks/{id}")

    def acquire_start(self, principal: Principal) -> None:
        """Take one of this minute's starts, or raise `QuotaExceeded` with the time until the next."""
        now = self._clock.monotonic()
        bucket = self._starts.get_bucket(principal, self._start_limit, now=now)
        if not bucket.try_acquire(now):
            raise _quota_exceeded(
                "starts_per_minute",
                self._quotas.starts_per_minute,
                "Start them more slowly.",
                retry_after_seconds=math.ceil(bucket.wait_seconds(now)),
            )

    @contextmanager
    def open_stream(self, principal: Principal) -> Generator[None]:
        """One of the principal's streams, for as long as this lasts."""
        if self._streams[principal] >= self._quotas.streams:
            raise _quota_exceeded(
                "streams", self._quotas.streams, "Close one first.", retry_after_seconds=STREAM_RETRY_AFTER_SECONDS
            )
        self._streams[principal] += 1
        try:
            yield
        finally:
            self._streams[principal] -= 1
            if not self._streams[principal]:
                del self._streams[principal]

    @property
    def rate_limiter_count(self) -> int:
        return len(self._starts)

    @property
    def open_stream_count(self) -> int:
        return self._streams.total()


def _quota_exceeded(
    quota: str, limit: int, advice: str, *, retry_after_seconds: int = ROW_QUOTA_RETRY_AFTER_SECONDS
) -> QuotaExceeded:
    return QuotaExceeded(
        f"Your quota '{quota}' of {limit} is used up. Nothing was done. {advice}",
        retry_after_seconds=retry_after_seconds,
        quota=quota,
        limit=limit,
    )
