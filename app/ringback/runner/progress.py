"""Progress, coalesced: the first at once, then at most one a second, always the newest."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ringback.domain.call import Progress
from ringback.domain.clock import Clock

PROGRESS_INTERVAL_SECONDS: Final = 1.0
"""One stored progress a second for each call: more is noise to whoever reads it and a write for each to the store."""


class ProgressWriter:
    """Takes every progress notification, writes down the newest now and then."""

    def __init__(self, write: Callable[[Progress], Awaitable[None]], *, clock: Clock) -> None:
        self._write = write
        self._clock = clock
        self._arrived = asyncio.Event()
        self.latest: Progress | None = None

    async def update(self, progress: Progress) -> None:
        self.latest = progress
        self._arrived.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            if self.latest is not None:
                await self._write(self.latest)
            await self._clock.sleep(PROGRESS_INTERVAL_SECONDS)
