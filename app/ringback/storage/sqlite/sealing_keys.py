"""The keys that sealed what is stored, as rows."""

import sqlite3
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from ringback.signing.sealing import sealed_value_header
from ringback.storage.codec import column_to_instant, instant_to_column
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/sealing_keys.sql")


class SqliteSealingKeys:
    """Implements `domain.sealed.SealingKeyRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def list_all(self) -> Mapping[str, datetime | None]:
        return {row["key_id"]: column_to_instant(row["lost_at"]) for row in self._sql.fetch_all("all")}

    async def add(self, key_id: str) -> None:
        self._sql.execute("add", key_id=key_id)

    async def remove(self, key_id: str) -> None:
        self._sql.execute("forget", key_id=key_id)

    async def accept_loss(self, key_id: str, *, now: datetime) -> None:
        self._sql.execute("accept_loss", key_id=key_id, now=instant_to_column(now))

    async def has_sealed(self, key_id: str) -> bool:
        return self._sql.fetch_one("sealed_by", prefix=sealed_value_header(key_id)) is not None
