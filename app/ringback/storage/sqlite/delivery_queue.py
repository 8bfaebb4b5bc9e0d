"""Deliveries as the dispatcher and the janitor see them: what is due, who has it, and what came of it."""

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final

from ringback.domain.delivery import Attempt, Delivery
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Sealer
from ringback.storage.queries import load
from ringback.storage.sqlite.columns import from_instant, from_json, to_instant
from ringback.storage.sqlite.database import Statements
from ringback.storage.sqlite.deliveries import to_delivery, to_row

_SQL: Final = load("ringback.storage.sqlite", "sql/delivery_queue.sql")

FRONT_ROWS: Final = 256
"""How much of what is due is looked at in order of time (a quarter of a millisecond, measured), before going webhook by
webhook."""


class SqliteDeliveryQueue:
    """Implements `domain.ports.DeliveryQueue`."""

    def __init__(self, connection: sqlite3.Connection, *, sealer: Sealer) -> None:
        self._sql = Statements(connection, _SQL)
        self._sealer = sealer

    async def lease(
        self, *, now: datetime, token: str, until: datetime, limit: int, per_webhook: int, busy: Collection[WebhookId]
    ) -> Sequence[Delivery]:
        due = self._due(now=now, limit=limit, per_webhook=per_webhook, busy=busy)
        if not due:
            return []
        ids = from_json(due)
        self._sql.change("lease", ids=ids, token=token, until=from_instant(until))
        return [to_delivery(row, self._sealer) for row in self._sql.all("by_ids", ids=ids)]

    async def settle(self, delivery: Delivery, *, lease_token: str) -> bool:
        return self._sql.change("settle", held_token=lease_token, **to_row(delivery)) == 1

    async def log(self, attempts: Sequence[Attempt]) -> None:
        self._sql.change_each(
            "log",
            [
                {
                    "delivery_id": attempt.delivery_id,
                    "id": attempt.id,
                    "number": attempt.number,
                    "started_at": from_instant(attempt.started_at),
                    "duration_ms": attempt.duration_ms,
                    "category": attempt.category,
                    "status_code": attempt.status_code,
                    "excerpt": attempt.excerpt,
                }
                for attempt in attempts
            ],
        )

    async def release(self, *, lease_token: str | None, now: datetime) -> int:
        if lease_token is None:
            return self._sql.change("release_lapsed", now=from_instant(now))
        return self._sql.change("release_held", lease_token=lease_token)

    async def release_all(self) -> int:
        return self._sql.change("release_all")

    async def next_due(self) -> datetime | None:
        (row,) = self._sql.all("next_due")
        return to_instant(row["due_at"])

    def _due(self, *, now: datetime, limit: int, per_webhook: int, busy: Collection[WebhookId]) -> list[str]:
        """The ids to lease, oldest due first.

        Two ways, because each alone has a bad day. In order of time, ten thousand rows of one dead receiver stand before
        everybody else's; webhook by webhook, ten thousand webhooks that wait for a later attempt are asked in vain.
        """
        front = self._sql.all("due_front", now=from_instant(now), limit=FRONT_ROWS)
        due = _spread(front, per_webhook=per_webhook, busy=frozenset(busy))[:limit]
        if len(due) == limit or len(front) < FRONT_ROWS:
            return due
        lanes = self._sql.all(
            "due_lanes", now=from_instant(now), limit=limit, per_webhook=per_webhook, busy=from_json(list(busy))
        )
        return [row["id"] for row in lanes]


def _spread(rows: Iterable[sqlite3.Row], *, per_webhook: int, busy: frozenset[WebhookId]) -> list[str]:
    taken: Counter[WebhookId] = Counter()
    ids: list[str] = []
    for row in rows:
        webhook_id: WebhookId = row["webhook_id"]
        if webhook_id not in busy and taken[webhook_id] < per_webhook:
            taken[webhook_id] += 1
            ids.append(row["id"])
    return ids
