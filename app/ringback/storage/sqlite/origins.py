"""The breakers of origins, as rows."""

import sqlite3
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from ringback.domain.breaker import CLOSED, Breaker
from ringback.storage.queries import load
from ringback.storage.sqlite.columns import from_instant, from_json, to_instant
from ringback.storage.sqlite.database import Statements

_SQL: Final = load("ringback.storage.sqlite", "sql/origins.sql")


class SqliteOrigins:
    """Implements `domain.webhook_rows.OriginRows`."""

    def __init__(self, connection: sqlite3.Connection, *, now: datetime) -> None:
        self._sql = Statements(connection, _SQL)
        self._now = now

    async def breakers(self, origins: Collection[str]) -> Mapping[str, Breaker]:
        rows = self._sql.all("breakers", origins=from_json(list(origins)))
        return {row["origin"]: to_breaker(row) for row in rows}

    async def save(self, origin: str, breaker: Breaker) -> None:
        if breaker == CLOSED:
            self._sql.change("forget", origin=origin)
        else:
            self._sql.change("save", origin=origin, now=from_instant(self._now), **from_breaker(breaker))

    async def remove(self, *, older_than: datetime, limit: int) -> int:
        return self._sql.change("remove", older_than=from_instant(older_than), limit=limit)


def to_breaker(row: sqlite3.Row) -> Breaker:
    return Breaker(failures=row["failures"], openings=row["openings"], paused_until=to_instant(row["paused_until"]))


def from_breaker(breaker: Breaker) -> dict[str, Any]:
    return {
        "failures": breaker.failures,
        "openings": breaker.openings,
        "paused_until": from_instant(breaker.paused_until),
    }
