"""Stored names of things at /mcp, as rows."""

import sqlite3
from collections.abc import Sequence
from typing import Final

from ringback.domain.joined_names import JoinedName
from ringback.storage.queries import load
from ringback.storage.sqlite.database import Statements

_SQL: Final = load("ringback.storage.sqlite", "sql/joined_names.sql")


class SqliteJoinedNames:
    """Implements `domain.joined_names.JoinedNameRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def all(self) -> Sequence[JoinedName]:
        return [
            JoinedName(kind=row["kind"], name=row["name"], upstream=row["upstream"], original=row["original"])
            for row in self._sql.all("all")
        ]

    async def insert(self, name: JoinedName) -> bool:
        inserted = self._sql.change(
            "insert", kind=name.kind, name=name.name, upstream=name.upstream, original=name.original
        )
        return inserted == 1
