"""The CPU time of checks against JSON Schemas.

A principal chooses both the schema of its events and their data: a request of a hundred bytes can take all the steps that a
check may have, a tenth of a second, during which no other request is served (`upstreams.json_schema`). The schema of a tool, an
event type or a question is the upstream's, and 16 KB of arguments take a third of that time. So the checks of one principal
have a limited part of each second.
"""

import math
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.errors import QuotaExceeded
from ringback.domain.principal import Principal
from ringback.domain.rate_limiter import RateLimit, RateLimiter

CHECK_RATE: Final = RateLimit(per_second=250_000, burst=1_000_000)
"""In µs: a quarter of each second, and one second at once, as for large bodies. A usual event or call takes some 50."""
PAYLOADS_REFUSED: Final = (
    "Your payload_schemas take too much time to check. Nothing was done. Wait, or declare simpler ones: "
    "PUT /v1/event-types/NAME"
)
ARGUMENTS_REFUSED: Final = (
    "The arguments of your calls take too much time to check. Nothing was done. Wait, or send large data as one text, or by "
    "reference."
)
INTERESTS_REFUSED: Final = (
    "The arguments of your event requests take too much time to check. Nothing was done. Wait, or send shorter ones."
)
ANSWERS_REFUSED: Final = "Your answers take too much time to check. Nothing was done. Wait, or send shorter ones."


class SchemaCheckLimiter:
    def __init__(self, *, clock: Clock, read_cpu_seconds: Callable[[], float] = time.thread_time) -> None:
        """`read_cpu_seconds`: the CPU time that this thread has used so far."""
        self._clock = clock
        self._read_cpu_seconds = read_cpu_seconds
        self._checks: RateLimiter[Principal] = RateLimiter()

    @contextmanager
    def measure_check(self, principal: Principal, refusal: str) -> Generator[None]:
        """Count the CPU time of the check inside. Raises `QuotaExceeded` before it if earlier ones took too much."""
        bucket = self._checks.get_bucket(principal, CHECK_RATE, now=self._clock.monotonic())
        if (wait := bucket.wait_seconds(self._clock.monotonic())) > 0:
            raise QuotaExceeded(
                refusal,
                retry_after_seconds=math.ceil(wait),
                quota="schema_checks",
                limit=int(CHECK_RATE.per_second),
            )
        began = self._read_cpu_seconds()
        try:
            yield
        finally:
            used = math.ceil((self._read_cpu_seconds() - began) * 1e6)
            bucket.consume_permit(self._clock.monotonic(), used)
