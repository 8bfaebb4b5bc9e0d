"""The keys that sealed what is stored, as rows."""

import sqlite3
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from ringback.signing.sealing import header_of
from ringback.storage.queries import load
from ringback.storage.sqlite.columns import from_instant, to_instant
from ringback.storage.sqlite.database import Statements

_SQL: Final = load("ringback.storage.sqlite", "sql/sealing_keys.sql")


class SqliteSealingKeys:
    """Implements `domain.sealed.SealingKeyRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def all(self) -> Mapping[str, datetime | None]:
        return {row["key_id"]: to_instant(row["lost_at"]) for row in self._sql.all("all")}

    async def add(self, key_id: str) -> None:
        self._sql.change("add", key_id=key_id)

    async def forget(self, key_id: str) -> None:
        self._sql.change("forget", key_id=key_id)

    async def accept_loss(self, key_id: str, *, now: datetime) -> None:
        self._sql.change("accept_loss", key_id=key_id, now=from_instant(now))

    async def has_sealed(self, key_id: str) -> bool:
        return self._sql.one("sealed_by", prefix=header_of(key_id)) is not None
