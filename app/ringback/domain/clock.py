"""Time, handed in.

Instants are aware UTC datetimes in whole milliseconds: that is what the wire shows and what both stores keep, so a value
read back equals the value written. Times that two processes compare (leases, due dates) come from the store's clock, which
is `Transaction.now()`; everything else asks the injected `Clock`.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The current instant in UTC, in whole milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards, for measuring how long something took."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return from_epoch_milliseconds(time.time_ns() // 1_000_000)  # noqa: TID251 - the one place that reads it

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def seconds(value: float) -> timedelta:
    """A duration that keeps instants in whole milliseconds."""
    return timedelta(milliseconds=round(value * 1000))


def iso(instant: datetime) -> str:
    """RFC 3339 in UTC with milliseconds and `Z`, as every body of ours writes it: 2026-11-20T17:00:00.000Z."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def epoch_milliseconds(instant: datetime) -> int:
    return round(instant.timestamp() * 1000)


def from_epoch_milliseconds(value: int) -> datetime:
    return datetime.fromtimestamp(value // 1000, UTC) + timedelta(milliseconds=value % 1000)
