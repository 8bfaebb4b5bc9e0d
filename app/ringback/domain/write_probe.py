"""The probe by which readiness and `ringback doctor` find out whether the store accepts writes, before a call fails."""

from typing import Final, Protocol

PROBE_BYTES: Final = 32 * 1024
"""The size of a usual call's rows, indexes and events. A smaller write may fit into space that SQLite already has."""
DISK_FREE_BYTES_MIN: Final = 16 * 1024 * 1024
"""Four of the largest requests that are accepted by default. With less free space, writes fail soon."""


class WriteProbe(Protocol):
    async def write_probe_row(self) -> None:
        """Write `PROBE_BYTES` into one row, always the same.

        Raises `StoreUnavailable` if the disk has less than `DISK_FREE_BYTES_MIN` free. Errors of the write are raised here or
        by the commit.
        """
        ...
