"""Rate limits: so many permits a second on average, and a burst at once.

Webhooks with a rate, the starts of a principal and the messages of an upstream are limited here. The instants are seconds of
one clock of the caller's, which hands in `now`.
"""

import math
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

K = TypeVar("K")

TRACKED_KEYS_MAX: Final = 10_000
"""Buckets of one limiter. When there are more, the full ones are dropped: a new bucket is full, too."""
_TOLERANCE_SECONDS: Final = 1e-6
"""Instants are floats: seconds since 1970 are 0.24 µs apart, and 3 * 0.1 is more than 0.3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    per_second: float
    burst: float
    """Permits in a full bucket."""


@dataclass(slots=True)
class TokenBucket:
    """A token bucket, kept as the generic cell rate algorithm does (ITU-T I.371): one instant instead of a count and a time."""

    limit: RateLimit
    full_at: float = -math.inf
    """When the bucket is full again, if nothing more is consumed."""

    def available_permits(self, now: float) -> int:
        consumed = max(0.0, self.full_at - now - _TOLERANCE_SECONDS) * self.limit.per_second
        return max(0, math.floor(self.limit.burst - consumed))

    def wait_seconds(self, now: float, count: int = 1) -> float:
        """Seconds until `count` permits are available; 0 if they are. `count` is at most the burst."""
        wait = self.full_at - now - (self.limit.burst - count) / self.limit.per_second
        return wait if wait > _TOLERANCE_SECONDS else 0.0

    def try_acquire(self, now: float, count: int = 1) -> bool:
        """Consume `count` permits if they are available, or none."""
        if self.wait_seconds(now, count) > 0:
            return False
        self.consume_permit(now, count)
        return True

    def reserve(self, now: float, count: int = 1) -> float:
        """Consume `count` permits in any case. The caller waits for the seconds that are returned before it uses one."""
        wait = self.wait_seconds(now)
        self.consume_permit(now, count)
        return wait

    def consume_permit(self, now: float, count: int = 1) -> None:
        self.full_at = max(now, self.full_at) + count / self.limit.per_second

    def refund_permit(self, count: int = 1) -> None:
        self.full_at -= count / self.limit.per_second


class RateLimiter(Generic[K]):
    """A token bucket for each key. Buckets that are not full are never dropped, so a key cannot evade its limit."""

    def __init__(self) -> None:
        self._buckets: dict[K, TokenBucket] = {}
        self._sweep_size = 0

    def __len__(self) -> int:
        return len(self._buckets)

    def get_bucket(self, key: K, limit: RateLimit, *, now: float) -> TokenBucket:
        """The key's bucket. A new `limit` applies from now on, to what was consumed before as well."""
        bucket = self._buckets.get(key)
        if bucket is None:
            self._drop_full_buckets(now)
            bucket = self._buckets[key] = TokenBucket(limit)
        bucket.limit = limit
        return bucket

    def refund_permit(self, key: K, count: int = 1) -> None:
        """Return permits that were consumed and not used."""
        if key in self._buckets:
            self._buckets[key].refund_permit(count)

    def _drop_full_buckets(self, now: float) -> None:
        """Sweep above the limit, and again only after the number of buckets has doubled: a sweep visits each of them."""
        if len(self._buckets) >= max(TRACKED_KEYS_MAX, self._sweep_size):
            self._buckets = {key: bucket for key, bucket in self._buckets.items() if bucket.full_at > now}
            self._sweep_size = 2 * len(self._buckets)
