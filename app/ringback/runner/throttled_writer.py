"""Writes the newest value at most once an interval: for values that change often and matter only as the latest.

`ProgressRecord` stores the progress of a call so, under its lease.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from ringback.asyncio_tasks import end_tasks
from ringback.domain.call import Progress
from ringback.domain.clock import Clock
from ringback.waits import LocalWaiter

PROGRESS_INTERVAL_SECONDS: Final = 1.0
"""One stored progress a second for each call: a reader needs no more, and each costs the store a write."""

T = TypeVar("T")


class ThrottledWriter(Generic[T]):
    def __init__(
        self, write: Callable[[T], Awaitable[None]], *, interval_seconds: float, clock: Clock, initial: T | None = None
    ) -> None:
        self.latest = initial
        self._write = write
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._updated = LocalWaiter()
        self.is_written = True

    def update(self, value: T) -> None:
        self.latest = value
        self.is_written = False
        self._updated.notify()

    async def flush(self) -> None:
        """Write the newest value now, unless it is written."""
        if (value := self.latest) is None or self.is_written:
            return
        self.is_written = True
        try:
            await self._write(value)
        except asyncio.CancelledError:
            self.is_written = False  # it may be, but another write does no harm
            raise

    async def run(self) -> None:
        """Write the first value at once and later ones at the interval, until cancelled."""
        while True:
            await self._updated.wait()
            await self.flush()
            await self._clock.sleep(self._interval_seconds)


class ProgressRecord:
    def __init__(self, *, clock: Clock) -> None:
        self.latest: Progress | None = None
        self.unstored: Progress | None = None
        """The latest, if it came too late to be stored by itself."""
        self._clock = clock
        self._writer: ThrottledWriter[Progress] | None = None
        """While progress is stored. It is not kept longer, because it refers to the call, which keeps this record."""
        self._writing: asyncio.Task[None] | None = None
        """Started by the first progress: most calls report none."""

    def update(self, progress: Progress) -> None:
        self.latest = progress
        self.unstored = progress if self._writer is None else None
        if self._writer is not None:
            self._writer.update(progress)
            self._writing = self._writing or asyncio.create_task(self._writer.run())

    def begin_writes(self, write_progress: Callable[[Progress], Awaitable[None]]) -> None:
        """Store progress from now on."""
        self._writer = ThrottledWriter(write_progress, interval_seconds=PROGRESS_INTERVAL_SECONDS, clock=self._clock)

    async def end_writes(self) -> None:
        """Store no further progress by itself."""
        writer, self._writer = self._writer, None
        writing, self._writing = self._writing, None
        if writing is not None:
            await end_tasks([writing])
        if writer is not None and not writer.is_written:
            self.unstored = writer.latest
