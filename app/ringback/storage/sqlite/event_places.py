"""Places of event logs: their heads, their horizons, and what stands where."""

import sqlite3
from datetime import datetime
from typing import Final

from ringback.domain.ids import EventId
from ringback.domain.principal import Principal
from ringback.storage.codec import instant_to_column
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/event_places.sql")


class SqliteEventLog:
    """Implements `domain.event_rows.EventPlaces`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def get_head(self, principal: Principal, *, lock: bool = False) -> int:
        del lock  # the one writer holds it anyhow
        row = self._sql.fetch_one("head", principal=principal)
        return 0 if row is None else row["seq"]

    async def get_retention_floor(self, principal: Principal) -> int:
        row = self._sql.fetch_one("head", principal=principal)
        return 0 if row is None else row["horizon"]

    async def get_event_id(self, principal: Principal, seq: int) -> EventId | None:
        row = self._sql.fetch_one("id_at", principal=principal, seq=seq)
        return None if row is None else EventId(row["id"])

    async def last_seq_before(self, principal: Principal, instant: datetime) -> int:
        row = self._sql.fetch_one("last_before", principal=principal, instant=instant_to_column(instant))
        return 0 if row is None else row["seq"]
