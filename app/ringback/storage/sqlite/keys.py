"""API keys, as rows: hashes only."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from ringback.domain import jsontext
from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.ids import KeyId
from ringback.domain.principal import ApiKey, Scope
from ringback.storage.queries import load
from ringback.storage.sqlite.columns import from_instant, from_json, from_optional_json, to_instant, to_optional_json
from ringback.storage.sqlite.database import Statements

_SQL: Final = load("ringback.storage.sqlite", "sql/keys.sql")


class SqliteKeys:
    """Implements `domain.principal.KeyRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def insert(self, key: ApiKey) -> None:
        self._sql.change(
            "insert",
            id=key.id,
            principal=key.principal,
            name=key.name,
            hash=key.hash,
            prefix=key.prefix,
            scopes=from_json(sorted(key.scopes)),
            upstreams=from_optional_json(None if key.upstreams is None else sorted(key.upstreams)),
            created_at=from_instant(key.created_at),
            revoked_at=from_instant(key.revoked_at),
        )

    async def by_hash(self, key_hash: str) -> ApiKey | None:
        row = self._sql.one("by_hash", hash=key_hash)
        return None if row is None else _to_key(row)

    async def all(self) -> Sequence[ApiKey]:
        return [_to_key(row) for row in self._sql.all("all")]

    async def revoke(self, key_id: KeyId, *, now: datetime) -> bool:
        return self._sql.change("revoke", id=key_id, now=from_instant(now)) == 1


def _to_key(row: sqlite3.Row) -> ApiKey:
    upstreams = to_optional_json(row["upstreams"])
    return ApiKey(
        id=row["id"],
        principal=row["principal"],
        name=row["name"],
        hash=row["hash"],
        prefix=row["prefix"],
        scopes=frozenset(Scope(scope) for scope in jsontext.loads(row["scopes"])),
        upstreams=None if upstreams is None else frozenset(upstreams),
        created_at=from_epoch_milliseconds(row["created_at"]),
        revoked_at=to_instant(row["revoked_at"]),
    )
