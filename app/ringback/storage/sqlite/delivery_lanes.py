"""Deliveries as the lane of one webhook: what was sent last of each event, and what is held back."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from ringback.domain.delivery import Delivery
from ringback.domain.ids import EventId, WebhookId
from ringback.domain.pages import Page
from ringback.domain.sealed import Sealer
from ringback.storage.queries import load
from ringback.storage.sqlite.columns import from_instant, from_json
from ringback.storage.sqlite.database import Statements
from ringback.storage.sqlite.deliveries import to_delivery
from ringback.storage.sqlite.scans import page_of

_SQL: Final = load("ringback.storage.sqlite", "sql/delivery_lanes.sql")


class SqliteDeliveryLanes:
    """Implements `domain.delivery_rows.DeliveryLanes`."""

    def __init__(self, connection: sqlite3.Connection, *, sealer: Sealer) -> None:
        self._sql = Statements(connection, _SQL)
        self._sealer = sealer

    async def latest(self, webhook_id: WebhookId, event_ids: Sequence[EventId]) -> Sequence[Delivery]:
        rows = self._sql.all("latest", webhook_id=webhook_id, event_ids=from_json(list(event_ids)))
        return [to_delivery(row, self._sealer) for row in rows]

    async def dead(self, webhook_id: WebhookId, *, limit: int, after: str = "") -> Page[Delivery, str]:
        return page_of(
            self._sql,
            "dead",
            lambda row: to_delivery(row, self._sealer),
            limit=limit,
            webhook_id=webhook_id,
            after=after,
        )

    async def held(self, webhook_id: WebhookId, *, limit: int) -> int:
        row = self._sql.one("held", webhook_id=webhook_id)
        return 0 if row is None else min(row["held"], limit)

    async def release(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> int:
        return self._sql.change("release", webhook_id=webhook_id, now=from_instant(now), limit=limit)

    async def hold(self, webhook_id: WebhookId, *, limit: int) -> int:
        return self._sql.change("hold", webhook_id=webhook_id, limit=limit)

    async def cancel(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> int:
        return self._sql.change("cancel", webhook_id=webhook_id, now=from_instant(now), limit=limit)
