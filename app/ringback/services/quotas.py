"""Quotas: limits for each principal, so that one principal cannot use up the service.

Rows are counted in the transaction that would add one, so concurrent requests cannot exceed a quota, on whichever node. Results
are counted when they are stored: a limit on result bytes is exceeded by the results of the calls that run by then. Streams and
the rate of starts are counted in this process; each node counts for itself.
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

OPEN_CALLS_UNLOCKED: Final = 1_000
"""The last open calls of a quota are counted one unit after the other. Before them units count at the same time: so many calls
would have to start while one unit runs, for some milliseconds, to exceed the quota."""
ROW_QUOTA_RETRY_AFTER_SECONDS: Final = 30
"""The time at which rows are deleted is unknown. 30 s keeps both the wait and the number of retries small."""
STREAM_RETRY_AFTER_SECONDS: Final = 5
"""The service notices a lost stream at its next frame, at the latest after a heartbeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The limits of one principal. The defaults fit a busy agent back end; reaching one usually means a bug."""

    open_calls: int = 10_000
    """Queued and running calls: the number that one process is designed to hold for all principals together."""
    result_bytes: int = 1024**3
    """Bytes of stored results. A result is never refused; above the limit, new calls are."""
    webhooks: int = 1_000
    """Registered webhooks. The callback of a call ends with its call, so `open_calls` limits callbacks."""
    streams: int = 100
    starts_per_minute: int = 60_000
    """Requests that start work: calls, tests, replays. Only a runaway loop sends a thousand per second."""


class QuotaEnforcer:
    def __init__(self, quotas: Quotas, *, clock: Clock) -> None:
        self._quotas = quotas
        self._clock = clock
        self._start_limit = RateLimit(per_second=quotas.starts_per_minute / 60, burst=quotas.starts_per_minute)
        self._starts: RateLimiter[Principal] = RateLimiter()
        self._streams: Counter[Principal] = Counter()

    async def require_call_quota(self, tx: Transaction, principal: Principal, *, count: int = 1) -> None:
        """Raise `QuotaExceeded` unless `count` more calls and their results fit into the quotas."""
        used = await tx.usage.get_usage(principal)
        if used.open_calls + count > self._quotas.open_calls - OPEN_CALLS_UNLOCKED:
            used = await tx.usage.get_usage(principal, lock=True)
        if used.open_calls + count > self._quotas.open_calls:
            raise _quota_exceeded("open_calls", self._quotas.open_calls, "Wait until calls end, or cancel calls.")
        if count and used.result_bytes >= self._quotas.result_bytes:
            raise _quota_exceeded(
                "result_bytes", self._quotas.result_bytes, "Stored results are deleted when they expire."
            )

    async def require_webhook_quota(self, tx: Transaction, principal: Principal) -> None:
        registered = await tx.usage.count_webhooks(principal, limit=self._quotas.webhooks)
        if registered >= self._quotas.webhooks:
            raise _quota_exceeded("webhooks", self._quotas.webhooks, "Remove webhooks: DELETE /v1/webhooks/{id}")

    def acquire_start(self, principal: Principal, *, count: int = 1) -> None:
        """Use `count` starts, or raise `QuotaExceeded` with the seconds until as many are free."""
        limit = self._quotas.starts_per_minute
        if count > limit:
            raise _quota_exceeded("starts_per_minute", limit, f"Start fewer than {count} calls in one request.")
        now = self._clock.monotonic()
        bucket = self._starts.get_bucket(principal, self._start_limit, now=now)
        if not bucket.try_acquire(now, count):
            raise _quota_exceeded(
                "starts_per_minute",
                limit,
                "Send fewer starts per minute.",
                retry_after_seconds=math.ceil(bucket.wait_seconds(now, count)),
            )

    @contextmanager
    def open_stream(self, principal: Principal) -> Generator[None]:
        """Count one stream of the principal until the context ends."""
        if self._streams[principal] >= self._quotas.streams:
            raise _quota_exceeded(
                "streams", self._quotas.streams, "Close a stream first.", retry_after_seconds=STREAM_RETRY_AFTER_SECONDS
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
