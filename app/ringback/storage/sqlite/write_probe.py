"""Writes as a real call does, to see whether one would be kept."""

import os
import sqlite3
from pathlib import Path
from typing import Final

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import DISK_FREE_BYTES_MIN, PROBE_BYTES
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/write_probe.sql")
_MIB: Final = 1024 * 1024


class SqliteWriteProbe:
    """Implements `domain.write_probe.WriteProbe`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def write_probe_row(self) -> None:
        self._require_disk_space()
        self._sql.execute("write", bytes=PROBE_BYTES)

    def _require_disk_space(self) -> None:
        """Looked at first: on a disk that is nearly full the probe itself must not take the place of a call."""
        (row,) = self._sql.fetch_all("file")
        folder = Path(row["file"]).parent
        try:
            disk = os.statvfs(folder)
        except OSError as error:
            raise StoreUnavailable(
                f"The folder '{folder}' of the database cannot be reached: {error.strerror}."
            ) from error
        free = disk.f_bavail * disk.f_frsize
        if disk.f_blocks > 0 and free < DISK_FREE_BYTES_MIN:  # some network file systems tell no sizes at all
            raise StoreUnavailable(
                f"The disk of the database is full: {free // _MIB} MiB are free in '{folder}', and {DISK_FREE_BYTES_MIN // _MIB} "
                "are needed. Free some space; nothing has to be restarted."
            )
