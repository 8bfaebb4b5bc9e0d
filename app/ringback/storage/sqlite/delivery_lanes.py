"""Deliveries as the lane of one webhook: what was sent last of each event, and what is held back."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from ringback.domain.cursor import Page
from ringback.domain.delivery import Delivery
from ringback.domain.encryption import Sealer
from ringback.domain.ids import EventId, WebhookId
from ringback.storage.codec import instant_to_column, json_to_column
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements
from ringback.storage.sqlite.deliveries import row_to_delivery
from ringback.storage.sqlite.paging import fetch_scanned_page

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/delivery_lanes.sql")


class SqliteWebhookDeliveries:
    """Implements `domain.delivery_rows.DeliveryLanes`."""

    def __init__(self, connection: sqlite3.Connection, *, sealer: Sealer) -> None:
        self._sql = Statements(connection, _SQL)
        self._sealer = sealer

    async def latest_by_event(self, webhook_id: WebhookId, event_ids: Sequence[EventId]) -> Sequence[Delivery]:
        rows = self._sql.fetch_all("latest", webhook_id=webhook_id, event_ids=json_to_column(list(event_ids)))
        return [row_to_delivery(row, self._sealer) for row in rows]

    async def list_dead(self, webhook_id: WebhookId, *, limit: int, after: str = "") -> Page[Delivery, str]:
        return fetch_scanned_page(
            self._sql,
            "dead",
            lambda row: row_to_delivery(row, self._sealer),
            limit=limit,
            webhook_id=webhook_id,
            after=after,
        )

    async def count_held(self, webhook_id: WebhookId, *, limit: int) -> int:
        row = self._sql.fetch_one("held", webhook_id=webhook_id)
        return 0 if row is None else min(row["held"], limit)

    async def release_held(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> int:
        return self._sql.execute("release", webhook_id=webhook_id, now=instant_to_column(now), limit=limit)

    async def hold_pending(self, webhook_id: WebhookId, *, limit: int) -> int:
        return self._sql.execute("hold", webhook_id=webhook_id, limit=limit)

    async def cancel_open(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> int:
        return self._sql.execute("cancel", webhook_id=webhook_id, now=instant_to_column(now), limit=limit)
