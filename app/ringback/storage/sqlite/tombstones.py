"""What is left of expired calls: enough to keep the promise of their idempotency keys."""

import sqlite3
from datetime import datetime
from typing import Final

from ringback.domain.call_rows import Tombstone
from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal
from ringback.storage.codec import instant_to_column
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/tombstones.sql")


class SqliteTombstones:
    """Implements `domain.call_rows.TombstoneRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def archive(self, tombstone: Tombstone) -> None:
        expired_at = instant_to_column(tombstone.expired_at)
        call = {"principal": tombstone.principal, "call_id": tombstone.call_id}
        self._sql.execute("delete_call", call_id=tombstone.call_id)
        self._sql.execute("expire_own_webhook", expired_at=expired_at, **call)
        self._sql.execute(
            "bury",
            idempotency_key=tombstone.idempotency_key,
            request_hash=tombstone.request_hash,
            expired_at=expired_at,
            **call,
        )

    async def get(self, principal: Principal, *, call_id: CallId | None, key: str | None) -> Tombstone | None:
        row = self._sql.fetch_one("get", principal=principal, call_id=call_id, key=key)
        return None if row is None else _row_to_tombstone(row)

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        return self._sql.execute("remove", older_than=instant_to_column(cutoff), limit=limit)


def _row_to_tombstone(row: sqlite3.Row) -> Tombstone:
    return Tombstone(
        call_id=row["call_id"],
        principal=row["principal"],
        idempotency_key=row["idempotency_key"],
        request_hash=row["request_hash"],
        expired_at=from_epoch_milliseconds(row["expired_at"]),
    )
