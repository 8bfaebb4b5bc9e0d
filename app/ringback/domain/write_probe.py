"""Whether the store would keep what it is given: readiness and `ringback doctor` ask before somebody's call has to find out."""

from typing import Final, Protocol

PROBE_BYTES: Final = 32 * 1024
"""As much as the rows, indexes and events of a usual call take. A smaller write may fit into space that SQLite already has."""
DISK_FREE_BYTES_MIN: Final = 16 * 1024 * 1024
"""Four of the largest requests that are read by default. A disk with less refuses some of them soon, if not the next one."""


class WriteProbe(Protocol):
    async def write_probe_row(self) -> None:
        """Write `PROBE_BYTES`, in one row that is written again each time.

        Raises `StoreUnavailable` when the disk has less than `FREE_BYTES_MIN` left. What the write itself meets, this method or
        the commit of its unit of work raises.
        """
        ...
