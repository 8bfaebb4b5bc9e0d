"""Deliveries as the dispatcher sees them: what is due, who has it, and what came of it."""

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from ringback.domain.delivery import Attempt, Delivery, Settled
from ringback.domain.ids import DeliveryId, WebhookId
from ringback.domain.pages import Page
from ringback.domain.sealed import Sealer
from ringback.storage.queries import load
from ringback.storage.sqlite.columns import from_instant, from_json, to_instant
from ringback.storage.sqlite.database import Statements
from ringback.storage.sqlite.deliveries import to_delivery

_SQL: Final = load("ringback.storage.sqlite", "sql/delivery_queue.sql")

FRONT_ROWS: Final = 256
"""How much of what is due is looked at in order of time (a quarter of a millisecond, measured), before going webhook by
webhook."""

LANES_SCANNED_MAX: Final = 2_000
"""Webhooks with something pending that are visited in one unit of work: some 5 ms."""

KEYS_SCANNED_MAX: Final = 500
"""Order keys of one webhook that are visited in one unit of work: some 2 ms."""


class SqliteDeliveryQueue:
    """Implements `domain.delivery_rows.DeliveryQueue`."""

    def __init__(self, connection: sqlite3.Connection, *, sealer: Sealer) -> None:
        self._sql = Statements(connection, _SQL)
        self._sealer = sealer

    async def lanes(
        self, *, now: datetime, without: Collection[WebhookId], limit: int, after: str = ""
    ) -> Page[WebhookId, str]:
        """Two ways, because each alone has a bad day.

        In order of time, ten thousand rows of one dead receiver stand before everybody else's; webhook by webhook, ten
        thousand webhooks that wait for a later attempt are asked in vain.
        """
        front = self._sql.all("due_front", now=from_instant(now), limit=FRONT_ROWS)
        lanes = [lane for lane in dict.fromkeys(row["webhook_id"] for row in front) if lane not in without][:limit]
        if len(lanes) == limit or len(front) < FRONT_ROWS:
            return Page(lanes, next_place=None)
        visited = self._sql.all("due_lanes", now=from_instant(now), scan=LANES_SCANNED_MAX, after=after)
        due = sorted((row for row in visited if row["due_at"] is not None), key=_due_at)
        found = [row["webhook_id"] for row in due if row["webhook_id"] not in without]
        if len(found) > limit:
            return Page(found[:limit], next_place=after)  # the others among these are due as well
        return Page(found, next_place=visited[-1]["webhook_id"] if len(visited) == LANES_SCANNED_MAX else None)

    async def lease(
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
            due = self._due_in_order(webhook_id, now=now, limit=limit, after=after)
        else:
            rows = self._sql.all("due", webhook_id=webhook_id, now=from_instant(now), limit=limit)
            due = Page[str, str]((row["id"] for row in rows), next_place=None)
        if not due:
            return Page(next_place=due.next_place)
        ids = from_json(due)
        self._sql.change("lease", ids=ids, owner=owner, token=token, until=from_instant(until))
        return Page(self._by_ids(ids), next_place=due.next_place)

    def _due_in_order(self, webhook_id: WebhookId, *, now: datetime, limit: int, after: str) -> Page[str, str]:
        visited = self._sql.all(
            "due_in_order", webhook_id=webhook_id, now=from_instant(now), scan=KEYS_SCANNED_MAX, after=after
        )
        keyless = self._sql.all("due_without_key", webhook_id=webhook_id, now=from_instant(now), limit=limit)
        due = sorted([*(row for row in visited if row["id"] is not None), *keyless], key=_due_at)
        place = "" if len(due) > limit else None
        if len(visited) == KEYS_SCANNED_MAX:
            place = visited[-1]["order_key"]
        return Page((row["id"] for row in due[:limit]), next_place=place)

    async def settle(self, settled: Sequence[Settled]) -> Collection[DeliveryId]:
        rows = [
            (
                each.delivery.id,
                each.state,
                each.delivery.attempts,
                from_instant(each.due_at),
                each.category,
                from_instant(each.finished_at),
                each.delivery.lease_token,
            )
            for each in settled
        ]
        return {row["id"] for row in self._sql.all("settle", rows=from_json(rows))}

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

    async def give_up(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> Sequence[Delivery]:
        ended = self._sql.all("give_up", webhook_id=webhook_id, now=from_instant(now), limit=limit)
        return self._by_ids(from_json([row["id"] for row in ended]))

    async def next_due(self) -> datetime | None:
        (row,) = self._sql.all("next_due")
        return to_instant(row["due_at"])

    def _by_ids(self, ids: str) -> list[Delivery]:
        return [to_delivery(row, self._sealer) for row in self._sql.all("by_ids", ids=ids)]


def _due_at(row: sqlite3.Row) -> int:
    return row["due_at"]
