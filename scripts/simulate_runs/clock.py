"""The clocks of simulated nodes.

A node reads the database's clock when it connects, and counts on from there: `now` differs from the database's time by less
than half a round trip, whatever the node's wall clock says. `wall_time` is that wall clock. `monotonic` has another beginning
on each node.
"""

import asyncio
from datetime import datetime
from typing import Final

from ringback.domain.clock import epoch_milliseconds, from_epoch_milliseconds

STARTED_AT: Final = epoch_milliseconds(datetime.fromisoformat("2026-11-20T17:00:00+00:00"))
"""The database's time at the beginning of each simulation, in milliseconds since 1970."""


class NodeClock:
    """Implements `domain.clock.Clock` on the time of the simulation's loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        error_seconds: float = 0.0,
        wall_offset_seconds: float = 0.0,
        monotonic_offset_seconds: float = 0.0,
    ) -> None:
        self._loop = loop
        self._now_at_zero = STARTED_AT + round(error_seconds * 1000)
        self._wall_offset_milliseconds = round(wall_offset_seconds * 1000)
        self._monotonic_offset = monotonic_offset_seconds

    def now(self) -> datetime:
        return from_epoch_milliseconds(self._now_at_zero + int(self._loop.time() * 1000))

    def wall_time(self) -> datetime:
        elapsed = int(self._loop.time() * 1000)
        return from_epoch_milliseconds(STARTED_AT + self._wall_offset_milliseconds + elapsed)

    def monotonic(self) -> float:
        return self._loop.time() + self._monotonic_offset

    def continue_from(self, last: datetime) -> None:
        """The database's clock needs no continuation."""

    def confirmed_now(self) -> datetime:
        return self.now()

    def confirm_after(self, last: datetime) -> bool:  # noqa: ARG002 - a clock's name
        """The database's clock is right in every simulation."""
        return False

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
