"""How far webhooks have come that catch up, as rows."""

import sqlite3
from typing import Final

from ringback.domain.catch_up import CatchUp
from ringback.domain.ids import WebhookId
from ringback.storage.queries import load
from ringback.storage.sqlite.database import Statements

_SQL: Final = load("ringback.storage.sqlite", "sql/catch_ups.sql")


class SqliteCatchUps:
    """Implements `domain.catch_up.CatchUpRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def get(self, webhook_id: WebhookId) -> CatchUp | None:
        row = self._sql.one("get", webhook_id=webhook_id)
        return None if row is None else _to_catch_up(row)

    async def next(self, *, after: str) -> CatchUp | None:
        row = self._sql.one("next", after=after) or self._sql.one("next", after="")
        return None if row is None else _to_catch_up(row)

    async def put(self, catch_up: CatchUp) -> None:
        self._sql.change(
            "put",
            webhook_id=catch_up.webhook_id,
            principal=catch_up.principal,
            seq=catch_up.seq,
            delivered=catch_up.delivered,
        )

    async def end(self, webhook_id: WebhookId) -> None:
        self._sql.change("end", webhook_id=webhook_id)


def _to_catch_up(row: sqlite3.Row) -> CatchUp:
    return CatchUp(webhook_id=row["webhook_id"], principal=row["principal"], seq=row["seq"], delivered=row["delivered"])
