"""Deliveries as what is still to be told of calls."""

import sqlite3
from collections.abc import Collection
from datetime import datetime
from typing import Final

from ringback.domain.ids import CallId
from ringback.storage.queries import load
from ringback.storage.sqlite.columns import from_instant, from_json
from ringback.storage.sqlite.database import Statements

_SQL: Final = load("ringback.storage.sqlite", "sql/call_deliveries.sql")


class SqliteCallDeliveries:
    """Implements `domain.delivery_rows.CallDeliveries`."""

    def __init__(self, connection: sqlite3.Connection, *, now: datetime) -> None:
        self._sql = Statements(connection, _SQL)
        self._now = now

    async def supersede(self, call_ids: Collection[CallId]) -> None:
        if call_ids:
            self._sql.change("supersede", call_ids=from_json(list(call_ids)), now=from_instant(self._now))

    async def spare(self, call_id: CallId) -> None:
        self._sql.change("spare", call_id=call_id, now=from_instant(self._now))

    async def waits(self, call_id: CallId) -> bool:
        (row,) = self._sql.all("waits", call_id=call_id)
        return bool(row["waits"])
