"""Stored names of things at /mcp, as rows."""

import sqlite3
from collections.abc import Sequence
from typing import Final

from ringback.domain.upstream_rows import ToolAlias
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/joined_names.sql")


class SqliteToolAliases:
    """Implements `domain.joined_names.JoinedNameRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def list_all(self) -> Sequence[ToolAlias]:
        return [
            ToolAlias(kind=row["kind"], name=row["name"], upstream=row["upstream"], original=row["original"])
            for row in self._sql.fetch_all("all")
        ]

    async def insert(self, alias: ToolAlias) -> bool:
        inserted = self._sql.execute(
            "insert", kind=alias.kind, name=alias.name, upstream=alias.upstream, original=alias.original
        )
        return inserted == 1
