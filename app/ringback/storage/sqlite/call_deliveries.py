"""Deliveries as what is still to be told of calls."""

import sqlite3
from collections.abc import Collection
from datetime import datetime
from typing import Final

from ringback.domain.ids import CallId
from ringback.storage.codec import instant_to_column, json_to_column
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/call_deliveries.sql")


class SqliteCallDeliveries:
    """Implements `domain.delivery_rows.CallDeliveries`."""

    def __init__(self, connection: sqlite3.Connection, *, now: datetime) -> None:
        self._sql = Statements(connection, _SQL)
        self._now = now

    async def cancel_superseded_progress(self, call_ids: Collection[CallId]) -> None:
        if call_ids:
            self._sql.execute("supersede", call_ids=json_to_column(list(call_ids)), now=instant_to_column(self._now))

    async def cancel_detached(self, call_id: CallId) -> None:
        self._sql.execute("spare", call_id=call_id, now=instant_to_column(self._now))

    async def has_unsent(self, call_id: CallId) -> bool:
        (row,) = self._sql.fetch_all("waits", call_id=call_id)
        return bool(row["waits"])
