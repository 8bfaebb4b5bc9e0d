"""Stores the progress of a call under its lease, at most once an interval."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ringback.asyncio_tasks import end_tasks
from ringback.domain.call import Progress
from ringback.domain.clock import Clock
from ringback.runner.throttled_writer import ThrottledWriter

PROGRESS_INTERVAL_SECONDS: Final = 1.0
"""One stored progress a second for each call: a reader needs no more, and each costs the store a write."""


class ProgressRecord:
    def __init__(self, write_progress: Callable[[Progress], Awaitable[None]], *, clock: Clock) -> None:
        self._writer = ThrottledWriter(write_progress, interval_seconds=PROGRESS_INTERVAL_SECONDS, clock=clock)
        self._accepts_writes = False
        self._writing: asyncio.Task[None] | None = None
        """Started by the first progress: most calls report none."""

    @property
    def latest(self) -> Progress | None:
        return self._writer.latest

    def update(self, progress: Progress) -> None:
        self._writer.update(progress)
        if self._accepts_writes and self._writing is None:
            self._writing = asyncio.create_task(self._writer.run())

    def begin_writes(self) -> None:
        """Store progress from now on."""
        self._accepts_writes = True

    async def end_writes(self) -> None:
        """Store no further progress by itself."""
        self._accepts_writes = False
        if (writing := self._writing) is not None:
            self._writing = None
            await end_tasks([writing])
