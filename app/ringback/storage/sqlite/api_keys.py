"""API keys, as rows: hashes only."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from ringback.domain import jsontext
from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.ids import KeyId
from ringback.domain.principal import ApiKey, Scope
from ringback.storage.codec import (
    column_to_instant,
    column_to_optional_json,
    instant_to_column,
    json_to_column,
    optional_json_to_column,
)
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/keys.sql")


class SqliteApiKeys:
    """Implements `domain.principal.KeyRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def insert(self, key: ApiKey) -> None:
        self._sql.execute(
            "insert",
            id=key.id,
            principal=key.principal,
            name=key.name,
            hash=key.hash,
            prefix=key.prefix,
            scopes=json_to_column(sorted(key.scopes)),
            upstreams=optional_json_to_column(None if key.upstreams is None else sorted(key.upstreams)),
            created_at=instant_to_column(key.created_at),
            revoked_at=instant_to_column(key.revoked_at),
        )

    async def find_by_hash(self, key_hash: str) -> ApiKey | None:
        row = self._sql.fetch_one("by_hash", hash=key_hash)
        return None if row is None else _row_to_api_key(row)

    async def list_all(self) -> Sequence[ApiKey]:
        return [_row_to_api_key(row) for row in self._sql.fetch_all("all")]

    async def revoke(self, key_id: KeyId, *, now: datetime) -> bool:
        return self._sql.execute("revoke", id=key_id, now=instant_to_column(now)) == 1


def _row_to_api_key(row: sqlite3.Row) -> ApiKey:
    upstreams = column_to_optional_json(row["upstreams"])
    return ApiKey(
        id=row["id"],
        principal=row["principal"],
        name=row["name"],
        hash=row["hash"],
        prefix=row["prefix"],
        scopes=frozenset(Scope(scope) for scope in jsontext.loads(row["scopes"])),
        upstreams=None if upstreams is None else frozenset(upstreams),
        created_at=from_epoch_milliseconds(row["created_at"]),
        revoked_at=column_to_instant(row["revoked_at"]),
    )
