"""How far scheduling time has come, as a row."""

import sqlite3
from datetime import datetime
from typing import Final

from ringback.storage.queries import load
from ringback.storage.sqlite.columns import from_instant, to_instant
from ringback.storage.sqlite.database import Statements

_SQL: Final = load("ringback.storage.sqlite", "sql/scheduling_time.sql")


class SqliteSchedulingTime:
    """Implements `domain.ports.SchedulingTimeRow`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def last(self) -> datetime | None:
        row = self._sql.one("last")
        return None if row is None else to_instant(row["instant"])

    async def keep(self, now: datetime) -> None:
        self._sql.change("keep", now=from_instant(now))
