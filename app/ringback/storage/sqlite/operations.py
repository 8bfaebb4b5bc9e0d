"""What the service keeps and measures for itself: usage counts, scheduling time, and a probe of whether it can write."""

import os
from datetime import datetime
from pathlib import Path
from typing import Final

from ringback.domain.call import CallStatus
from ringback.domain.delivery import DeliveryState
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import DISK_FREE_BYTES_MIN, PROBE_BYTES
from ringback.domain.principal import Principal
from ringback.domain.usage import StoreTotals, Usage
from ringback.storage.sqlite.columns import column_to_instant, instant_to_column
from ringback.storage.sqlite.unit_of_work import SqliteRows

_MIB: Final = 1024 * 1024


class SqliteUsage(SqliteRows, noun="usage"):
    """Implements `domain.usage.UsageRows`. Triggers count calls, so a count reads one row for each status."""

    async def get_usage(self, principal: Principal) -> Usage:
        (row,) = self._sql.fetch_all("usage", principal=principal)
        return Usage(open_calls=row["open_calls"], result_bytes=row["result_bytes"])

    async def count_webhooks(self, principal: Principal, *, limit: int) -> int:
        (row,) = self._sql.fetch_all("count_webhooks", principal=principal, limit=limit)
        return row["count"]

    async def count_totals(self) -> StoreTotals:
        (events,) = self._sql.fetch_all("count_events")
        calls = {CallStatus(row["status"]): row["count"] for row in self._sql.fetch_all("calls_by_status")}
        return StoreTotals(
            calls={status: calls.get(status, 0) for status in CallStatus},
            open_deliveries={
                DeliveryState(row["state"]): row["count"] for row in self._sql.fetch_all("open_deliveries")
            },
            events=events["count"],
        )


class SqliteSchedulingTime(SqliteRows, noun="scheduling_time"):
    """Implements `domain.ports.SchedulingTimeRow`."""

    async def load(self) -> datetime | None:
        row = self._sql.fetch_one("load")
        return None if row is None else column_to_instant(row["instant"])

    async def save(self, now: datetime) -> None:
        self._sql.execute("save", now=instant_to_column(now))


class SqliteWriteProbe(SqliteRows, noun="write_probe"):
    """Implements `domain.ports.WriteProbe`: writes as many bytes as a call does."""

    async def write_probe_row(self) -> None:
        self._require_disk_space()
        self._sql.execute("write", bytes=PROBE_BYTES)

    def _require_disk_space(self) -> None:
        """Checked first: on a nearly full disk the probe must not take the space of a call."""
        (row,) = self._sql.fetch_all("file")
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
