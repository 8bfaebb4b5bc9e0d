"""The webhooks that hear what upstreams tell unasked."""

import sqlite3
from collections.abc import Collection
from datetime import datetime
from typing import Final

from ringback.domain.change_subscriptions import ChangeSubscription
from ringback.storage.codec import instant_to_column
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/watches.sql")


class SqliteChangeSubscriptions:
    """Implements `domain.watches.WatchRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def list_all(self, *, now: datetime) -> Collection[ChangeSubscription]:
        return [
            ChangeSubscription(principal=row["principal"], upstream=row["upstream"], resource_uri=row["resource_uri"])
            for row in self._sql.fetch_all("all", now=instant_to_column(now))
        ]
