"""The clock of durable calls, which tests replace, and the pauses between attempts."""

import time
from typing import Final, Protocol

from ringback.backoff import Backoff
from ringback.client.http_transport import ClientClock, SystemClientClock

RETRY_BACKOFF: Final = Backoff(first_seconds=0.5, longest_seconds=30.0)
"""The pause before a target that cannot be reached is tried again."""


class DurableClock(ClientClock, Protocol):
    def now(self) -> float:
        """Seconds since 1970, for expiries that several processes compare."""
        ...


class SystemDurableClock(SystemClientClock):
    def now(self) -> float:
        return time.time()  # noqa: TID251 - the library's default clock
