"""What a unit of work sees of SQLite."""

import os
import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from ringback.domain.encryption import Sealer
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import DISK_FREE_BYTES_MIN, PROBE_BYTES
from ringback.storage.log_appends import StepwiseLogAppends
from ringback.storage.rows.calls import SqlCallQueue, SqlCalls
from ringback.storage.rows.deliveries import SqlDeliveries
from ringback.storage.rows.delivery_queue import SqlDeliveryQueue
from ringback.storage.rows.statements import Statements
from ringback.storage.rows.transaction import SqlTransaction
from ringback.storage.rows.unit import SqlRows, UnitContext
from ringback.storage.rows.webhook_reader import CachingWebhookReader
from ringback.storage.rows.webhooks import SqlWebhooks

_MIB: Final = 1024 * 1024


class SqliteWriteProbe(SqlRows, noun="write_probe"):
    """Implements `domain.ports.WriteProbe`: writes as many bytes as a call does."""

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


class SqliteTransaction(SqlTransaction):
    write_probe: SqliteWriteProbe
    calls: SqlCalls
    call_queue: SqlCallQueue
    webhooks: SqlWebhooks
    deliveries: SqlDeliveries
    delivery_queue: SqlDeliveryQueue

    def __init__(
        self,
        connection: sqlite3.Connection,
        open_statements: Callable[[str], Statements],
        *,
        sealer: Sealer,
        webhook_reader: CachingWebhookReader,
        now: datetime,
        confirmed_now: datetime | None = None,
    ) -> None:
        """`open_statements` is that of the connection (`statements_on`). A unit that only reads leaves `confirmed_now` out."""
        confirmed = now if confirmed_now is None else confirmed_now
        super().__init__(UnitContext(open_statements, sealer, webhook_reader, now, confirmed))
        self.connection = connection

    @property
    def log_appends(self) -> StepwiseLogAppends:
        """A new one each time: if the transaction held it, each unit of work would be garbage that only a collection frees."""
        return StepwiseLogAppends(self)
