"""The clock of durable calls, which tests replace, and the pauses between attempts."""

import time
from typing import Final, Protocol

from ringback.client.http_transport import ClientClock, SystemClientClock

RETRY_SECONDS_FIRST: Final = 0.5
RETRY_SECONDS_MAX: Final = 30.0
"""The pause before a target that cannot be reached is tried again doubles between these."""


class DurableClock(ClientClock, Protocol):
    def now(self) -> float:
        """Seconds since 1970, for expiries that several processes compare."""
        ...


class SystemDurableClock(SystemClientClock):
    def now(self) -> float:
        return time.time()  # noqa: TID251 - the library's default clock


def retry_seconds(failures: int) -> float:
    """The pause after `failures` failures in a row, at least one."""
    return min(RETRY_SECONDS_MAX, RETRY_SECONDS_FIRST * 2.0 ** min(failures - 1, 16))
