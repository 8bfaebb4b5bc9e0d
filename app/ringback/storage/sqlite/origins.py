"""The breakers of origins, as rows."""

import sqlite3
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from ringback.domain.circuit_breaker import CLOSED_BREAKER, CircuitBreaker
from ringback.storage.codec import column_to_instant, instant_to_column, json_to_column
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/origins.sql")


class SqliteOriginBreakers:
    """Implements `domain.webhook_rows.OriginRows`."""

    def __init__(self, connection: sqlite3.Connection, *, now: datetime) -> None:
        self._sql = Statements(connection, _SQL)
        self._now = now

    async def get_breakers(self, origins: Collection[str]) -> Mapping[str, CircuitBreaker]:
        rows = self._sql.fetch_all("breakers", origins=json_to_column(list(origins)))
        return {row["origin"]: row_to_breaker(row) for row in rows}

    async def save_breaker(self, origin: str, breaker: CircuitBreaker) -> None:
        if breaker == CLOSED_BREAKER:
            self._sql.execute("forget", origin=origin)
        else:
            self._sql.execute("save", origin=origin, now=instant_to_column(self._now), **breaker_to_row(breaker))

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        return self._sql.execute("remove", older_than=instant_to_column(cutoff), limit=limit)


def row_to_breaker(row: sqlite3.Row) -> CircuitBreaker:
    return CircuitBreaker(
        failures=row["failures"], openings=row["openings"], paused_until=column_to_instant(row["paused_until"])
    )


def breaker_to_row(breaker: CircuitBreaker) -> dict[str, Any]:
    return {
        "failures": breaker.failures,
        "openings": breaker.openings,
        "paused_until": instant_to_column(breaker.paused_until),
    }
