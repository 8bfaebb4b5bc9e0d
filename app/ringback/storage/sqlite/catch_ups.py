"""How far webhooks have come that catch up, as rows."""

import sqlite3
from typing import Final

from ringback.domain.catch_up import CatchUp
from ringback.domain.ids import WebhookId
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/catch_ups.sql")


class SqliteCatchUps:
    """Implements `domain.catch_up.CatchUpRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def get(self, webhook_id: WebhookId) -> CatchUp | None:
        row = self._sql.fetch_one("get", webhook_id=webhook_id)
        return None if row is None else _row_to_catch_up(row)

    async def find_next(self, *, after: str) -> CatchUp | None:
        row = self._sql.fetch_one("next", after=after) or self._sql.fetch_one("next", after="")
        return None if row is None else _row_to_catch_up(row)

    async def save(self, catch_up: CatchUp) -> None:
        self._sql.execute(
            "put",
            webhook_id=catch_up.webhook_id,
            principal=catch_up.principal,
            seq=catch_up.seq,
            delivered=catch_up.delivered,
        )

    async def remove(self, webhook_id: WebhookId) -> None:
        self._sql.execute("end", webhook_id=webhook_id)


def _row_to_catch_up(row: sqlite3.Row) -> CatchUp:
    return CatchUp(webhook_id=row["webhook_id"], principal=row["principal"], seq=row["seq"], delivered=row["delivered"])
