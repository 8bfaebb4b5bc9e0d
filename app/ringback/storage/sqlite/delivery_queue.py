"""Deliveries as the dispatcher sees them: what is due, who has it, and what came of it."""

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from ringback.domain.cursor import Page
from ringback.domain.delivery import Attempt, Delivery, DeliveryUpdate
from ringback.domain.encryption import Sealer
from ringback.domain.ids import DeliveryId, WebhookId
from ringback.storage.codec import column_to_instant, instant_to_column, json_to_column
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements
from ringback.storage.sqlite.deliveries import row_to_delivery

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/delivery_queue.sql")

DUE_SCAN_ROWS_MAX: Final = 256
"""How much of what is due is looked at in order of time (a quarter of a millisecond, measured), before going webhook by
webhook."""

WEBHOOKS_SCANNED_MAX: Final = 2_000
"""Webhooks with something pending that are visited in one unit of work: some 5 ms."""

ORDER_KEYS_SCANNED_MAX: Final = 500
"""Order keys of one webhook that are visited in one unit of work: some 2 ms."""


class SqliteDeliveryQueue:
    """Implements `domain.delivery_rows.DeliveryQueue`."""

    def __init__(self, connection: sqlite3.Connection, *, sealer: Sealer) -> None:
        self._sql = Statements(connection, _SQL)
        self._sealer = sealer

    async def list_due_webhooks(
        self, *, now: datetime, excluding: Collection[WebhookId], limit: int, after: str = ""
    ) -> Page[WebhookId, str]:
        """Two ways, because each alone has a bad day.

        In order of time, ten thousand rows of one dead receiver stand before everybody else's; webhook by webhook, ten
        thousand webhooks that wait for a later attempt are asked in vain.
        """
        oldest_due = self._sql.fetch_all("due_front", now=instant_to_column(now), limit=DUE_SCAN_ROWS_MAX)
        webhook_ids = [
            webhook_id
            for webhook_id in dict.fromkeys(row["webhook_id"] for row in oldest_due)
            if webhook_id not in excluding
        ][:limit]
        if len(webhook_ids) == limit or len(oldest_due) < DUE_SCAN_ROWS_MAX:
            return Page(webhook_ids, next_position=None)
        visited = self._sql.fetch_all("due_lanes", now=instant_to_column(now), scan=WEBHOOKS_SCANNED_MAX, after=after)
        due = sorted((row for row in visited if row["due_at"] is not None), key=_row_due_at)
        found = [row["webhook_id"] for row in due if row["webhook_id"] not in excluding]
        if len(found) > limit:
            return Page(found[:limit], next_position=after)  # the others among these are due as well
        return Page(found, next_position=visited[-1]["webhook_id"] if len(visited) == WEBHOOKS_SCANNED_MAX else None)

    async def lease_due(
        self,
        webhook_id: WebhookId,
        *,
        now: datetime,
        owner: str,
        token: str,
        until: datetime,
        limit: int,
        ordered: bool,
        after: str = "",
    ) -> Page[Delivery, str]:
        if ordered:
            due = self._find_due_in_order(webhook_id, now=now, limit=limit, after=after)
        else:
            rows = self._sql.fetch_all("due", webhook_id=webhook_id, now=instant_to_column(now), limit=limit)
            due = Page[str, str]((row["id"] for row in rows), next_position=None)
        if not due:
            return Page(next_position=due.next_position)
        ids = json_to_column(due)
        self._sql.execute("lease", ids=ids, owner=owner, token=token, until=instant_to_column(until))
        return Page(self._read_deliveries(ids), next_position=due.next_position)

    def _find_due_in_order(self, webhook_id: WebhookId, *, now: datetime, limit: int, after: str) -> Page[str, str]:
        visited = self._sql.fetch_all(
            "due_in_order", webhook_id=webhook_id, now=instant_to_column(now), scan=ORDER_KEYS_SCANNED_MAX, after=after
        )
        without_key = self._sql.fetch_all(
            "due_without_key", webhook_id=webhook_id, now=instant_to_column(now), limit=limit
        )
        due = sorted([*(row for row in visited if row["id"] is not None), *without_key], key=_row_due_at)
        next_position = "" if len(due) > limit else None
        if len(visited) == ORDER_KEYS_SCANNED_MAX:
            next_position = visited[-1]["order_key"]
        return Page((row["id"] for row in due[:limit]), next_position=next_position)

    async def apply_updates(self, updates: Sequence[DeliveryUpdate]) -> Collection[DeliveryId]:
        rows = [
            (
                each.delivery.id,
                each.state,
                each.delivery.attempts,
                instant_to_column(each.due_at),
                each.category,
                instant_to_column(each.finished_at),
                each.delivery.lease_token,
            )
            for each in updates
        ]
        return {row["id"] for row in self._sql.fetch_all("settle", rows=json_to_column(rows))}

    async def insert_attempts(self, attempts: Sequence[Attempt]) -> None:
        self._sql.execute_many(
            "log",
            [
                {
                    "delivery_id": attempt.delivery_id,
                    "id": attempt.id,
                    "number": attempt.number,
                    "started_at": instant_to_column(attempt.started_at),
                    "duration_ms": attempt.duration_ms,
                    "category": attempt.category,
                    "status_code": attempt.status_code,
                    "excerpt": attempt.excerpt,
                }
                for attempt in attempts
            ],
        )

    async def give_up_expired(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> Sequence[Delivery]:
        ended = self._sql.fetch_all("give_up", webhook_id=webhook_id, now=instant_to_column(now), limit=limit)
        return self._read_deliveries(json_to_column([row["id"] for row in ended]))

    async def next_due_at(self) -> datetime | None:
        (row,) = self._sql.fetch_all("next_due")
        return column_to_instant(row["due_at"])

    def _read_deliveries(self, ids: str) -> list[Delivery]:
        return [row_to_delivery(row, self._sealer) for row in self._sql.fetch_all("by_ids", ids=ids)]


def _row_due_at(row: sqlite3.Row) -> int:
    return row["due_at"]
