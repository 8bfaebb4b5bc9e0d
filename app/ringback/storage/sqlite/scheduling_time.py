"""How far scheduling time has come, as a row."""

import sqlite3
from datetime import datetime
from typing import Final

from ringback.storage.codec import column_to_instant, instant_to_column
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/scheduling_time.sql")


class SqliteSchedulingTime:
    """Implements `domain.ports.SchedulingTimeRow`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def load(self) -> datetime | None:
        row = self._sql.fetch_one("last")
        return None if row is None else column_to_instant(row["instant"])

    async def save(self, now: datetime) -> None:
        self._sql.execute("keep", now=instant_to_column(now))
