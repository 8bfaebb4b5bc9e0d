"""The clock of durable calls, which tests replace."""

import time
from typing import Protocol

from ringback.client.http_transport import ClientClock, SystemClientClock


class DurableClock(ClientClock, Protocol):
    def now(self) -> float:
        """Seconds since 1970, for expiries that several processes compare."""
        ...


class SystemDurableClock(SystemClientClock):
    def now(self) -> float:
        return time.time()  # noqa: TID251 - the library's default clock
