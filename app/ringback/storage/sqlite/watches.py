"""The webhooks that hear what upstreams tell unasked."""

import sqlite3
from collections.abc import Collection
from datetime import datetime
from typing import Final

from ringback.domain.watches import Watch
from ringback.storage.queries import load
from ringback.storage.sqlite.columns import from_instant
from ringback.storage.sqlite.database import Statements

_SQL: Final = load("ringback.storage.sqlite", "sql/watches.sql")


class SqliteWatches:
    """Implements `domain.watches.WatchRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def all(self, *, now: datetime) -> Collection[Watch]:
        return [
            Watch(principal=row["principal"], upstream=row["upstream"], resource_uri=row["resource_uri"])
            for row in self._sql.all("all", now=from_instant(now))
        ]
