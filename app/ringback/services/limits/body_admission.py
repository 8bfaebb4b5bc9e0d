"""Large request bodies: how much they may contain, and how often a principal may send them.

A body is decoded on the event loop, during which no other request is served. So the work of a body is limited, and the large
bodies of one principal, over REST and MCP together, have a limited part of each second. Small bodies pass at once.
"""

import math
from typing import Final

from ringback.domain import json_size
from ringback.domain.clock import Clock
from ringback.domain.errors import InvalidRequest, QuotaExceeded
from ringback.domain.principal import Principal
from ringback.domain.rate_limiter import RateLimit, RateLimiter, TokenBucket

LARGE_BYTES: Final = 16 * 1024
"""A larger body is counted. Most requests have some hundred bytes."""
BYTES_PER_WORK: Final = 20
WORK_RATE: Final = RateLimit(per_second=250_000, burst=1_000_000)
"""Work is estimated in µs of the event loop: a quarter of each second, and one second at once. That is a body of 4 MiB with one
long text each second, or a body of 250,000 numbers every one to two seconds."""
WAIT_SECONDS_MAX: Final = 5.0
"""A body that would have to wait longer is refused, because it is in memory while it waits."""


class BodyAdmission:
    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._work: RateLimiter[Principal] = RateLimiter()

    async def admit_body(self, principal: Principal, body: bytes) -> None:
        """Wait until the principal may have this body decoded.

        Raises `InvalidRequest` for a body with too many values, and `QuotaExceeded` if the wait were too long.
        """
        if len(body) <= LARGE_BYTES:
            return
        bucket = self._work.get_bucket(principal, WORK_RATE, now=self._clock.monotonic())
        self._require_short_wait(bucket, len(body) // BYTES_PER_WORK)
        work = _estimate_work(body)
        wait = self._require_short_wait(bucket, work)
        bucket.consume_permit(self._clock.monotonic(), work)
        if wait > 0:
            await self._clock.sleep(wait)
        if json_size.is_excessive(body):
            raise InvalidRequest(
                f"The body has more than {json_size.VALUES_MAX} JSON values, or more than {json_size.MEMBERS_MAX} members of "
                "objects. Nothing was done. Send large data as one text, or by reference.",
                values_max=json_size.VALUES_MAX,
                members_max=json_size.MEMBERS_MAX,
            )

    def _require_short_wait(self, bucket: TokenBucket, work: int) -> float:
        wait = bucket.wait_seconds(self._clock.monotonic(), min(work, int(WORK_RATE.burst)))
        if wait > WAIT_SECONDS_MAX:
            raise QuotaExceeded(
                "You send large bodies faster than this service decodes them for one principal. Nothing was done. Wait, send "
                "one at a time, or send large data by reference.",
                retry_after_seconds=math.ceil(wait - WAIT_SECONDS_MAX),
                quota="large_bodies",
                limit=int(WORK_RATE.per_second),
            )
        return wait


def _estimate_work(body: bytes) -> int:
    """At most the burst, so that each body is admitted at some time."""
    size = json_size.estimate_size(body)
    work = len(body) // BYTES_PER_WORK + size.values // 2 + size.members * 3 // 2
    return min(work, int(WORK_RATE.burst))
