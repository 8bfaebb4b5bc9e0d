"""Logs when the database becomes unavailable, that it still is, and when it works again.

Dozens of workers use the store every second. One line for each of their failures would hide everything else in the log.
"""

import logging
from collections.abc import Awaitable
from typing import Final, TypeVar

from ringback.domain.clock import Clock
from ringback.domain.errors import RowsLocked, StoreUnavailable

T = TypeVar("T")

log = logging.getLogger(__name__)

REPEAT_SECONDS: Final = 60.0
"""Between two lines that say so: a database may be away for a weekend."""


class Availability:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_until = float("-inf")
        self._quiet_about_rows_until = float("-inf")
        self._logged = False
        """Whether the last line said that the database is unavailable."""
        self._writing_failed = False
        self._failures = 0
        """Units that failed since the last line."""

    async def observe(self, unit: Awaitable[T], *, writes: bool) -> T:
        """The value of the unit, or its error."""
        try:
            value = await unit
        except RowsLocked as error:
            self._note_locked_rows(error)
            raise
        except StoreUnavailable as error:
            self._note_failure(error, writes=writes)
            raise
        if self._failures or self._logged:
            self._note_success(writes=writes)
        return value

    def _note_locked_rows(self, error: RowsLocked) -> None:
        """The database works: another unit, or a session of an operator, has not released a row."""
        if self._clock.monotonic() >= self._quiet_about_rows_until:
            log.warning("store.rows_locked", extra={"reason": error.detail})
            self._quiet_about_rows_until = self._clock.monotonic() + REPEAT_SECONDS

    def _note_failure(self, error: StoreUnavailable, *, writes: bool) -> None:
        self._failures += 1
        self._writing_failed |= writes
        if self._clock.monotonic() >= self._quiet_until:
            log.error("store.unavailable", extra={"reason": error.detail, "failures": self._failures})
            self._quiet_until = self._clock.monotonic() + REPEAT_SECONDS
            self._logged, self._failures = True, 0

    def _note_success(self, *, writes: bool) -> None:
        if self._writing_failed and not writes:
            return  # the disk may be full, which a reading unit does not notice
        self._failures, self._writing_failed = 0, False
        if self._logged:
            log.info("store.available")
            self._logged = False
