"""A probe of whether the database can be written."""

import os
from pathlib import Path
from typing import Final

from ringback.domain.errors import StoreUnavailable
from ringback.domain.write_probe import DISK_FREE_BYTES_MIN, PROBE_BYTES
from ringback.storage.rows.unit import SqlRows

_MIB: Final = 1024 * 1024


class SqliteWriteProbe(SqlRows, noun="write_probe"):
    """Implements `domain.write_probe.WriteProbe`: writes as many bytes as a call does."""

    async def write_probe_row(self) -> None:
        await self._require_disk_space()
        await self._sql.execute("write", bytes=PROBE_BYTES)

    async def _require_disk_space(self) -> None:
        """Checked first: on a nearly full disk the probe must not take the space of a call."""
        (row,) = await self._sql.fetch_all("file")
        folder = Path(row["file"]).parent
        try:
            disk = os.statvfs(folder)
        except OSError as error:
            raise StoreUnavailable(
                f"The folder '{folder}' of the database cannot be reached: {error.strerror}."
            ) from error
        free = disk.f_bavail * disk.f_frsize
        if disk.f_blocks > 0 and free < DISK_FREE_BYTES_MIN:  # some network file systems report no sizes
            raise StoreUnavailable(
                f"The disk of the database is full: {free // _MIB} MiB are free in '{folder}', and "
                f"{DISK_FREE_BYTES_MIN // _MIB} are needed. Free some space; nothing has to be restarted."
            )
