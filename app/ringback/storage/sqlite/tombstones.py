"""What is left of expired calls: enough to keep the promise of their idempotency keys."""

import sqlite3
from datetime import datetime
from typing import Final

from ringback.domain.call_rows import Tombstone
from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal
from ringback.storage.queries import load
from ringback.storage.sqlite.columns import from_instant
from ringback.storage.sqlite.database import Statements

_SQL: Final = load("ringback.storage.sqlite", "sql/tombstones.sql")


class SqliteTombstones:
    """Implements `domain.call_rows.TombstoneRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def bury(self, tombstone: Tombstone) -> None:
        expired_at = from_instant(tombstone.expired_at)
        call = {"principal": tombstone.principal, "call_id": tombstone.call_id}
        self._sql.change("delete_call", call_id=tombstone.call_id)
        self._sql.change("expire_own_webhook", expired_at=expired_at, **call)
        self._sql.change(
            "bury",
            idempotency_key=tombstone.idempotency_key,
            request_hash=tombstone.request_hash,
            expired_at=expired_at,
            **call,
        )

    async def get(self, principal: Principal, *, call_id: CallId | None, key: str | None) -> Tombstone | None:
        row = self._sql.one("get", principal=principal, call_id=call_id, key=key)
        return None if row is None else _to_tombstone(row)

    async def remove(self, *, older_than: datetime, limit: int) -> int:
        return self._sql.change("remove", older_than=from_instant(older_than), limit=limit)


def _to_tombstone(row: sqlite3.Row) -> Tombstone:
    return Tombstone(
        call_id=row["call_id"],
        principal=row["principal"],
        idempotency_key=row["idempotency_key"],
        request_hash=row["request_hash"],
        expired_at=from_epoch_milliseconds(row["expired_at"]),
    )
