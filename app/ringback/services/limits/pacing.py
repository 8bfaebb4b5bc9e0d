"""The pace of a request that changes many rows in batches: between two batches, the store belongs to others."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from ringback.domain.clock import Clock

BATCH_PAUSE_SECONDS_MAX: Final = 0.5
"""The longest pause. A batch takes milliseconds, or longer than this if the store is overloaded."""


class BatchPace:
    """Pauses before each batch but the first for as long as the one before it took, so that a request has half of the store."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pause_seconds = 0.0

    @asynccontextmanager
    async def next_batch(self) -> AsyncGenerator[None]:
        """Run the next batch inside, after the pause."""
        if self._pause_seconds > 0:
            await self._clock.sleep(self._pause_seconds)
        began_at = self._clock.monotonic()
        yield
        self._pause_seconds = min(self._clock.monotonic() - began_at, BATCH_PAUSE_SECONDS_MAX)
