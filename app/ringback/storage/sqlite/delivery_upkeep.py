"""Deliveries as the janitor sees them: whose holder has died, whose time is over, and what is held for too long."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from ringback.domain.delivery import Delivery
from ringback.domain.ids import WebhookId
from ringback.domain.pages import Page
from ringback.domain.sealed import Sealer
from ringback.storage.queries import load
from ringback.storage.sqlite.columns import from_instant, from_json
from ringback.storage.sqlite.database import Statements
from ringback.storage.sqlite.deliveries import to_delivery

_SQL: Final = load("ringback.storage.sqlite", "sql/delivery_upkeep.sql")
LANES_SCANNED_MAX: Final = 1_000
"""Webhooks with something held that are visited in one unit of work: some 3 ms."""


class SqliteDeliveryUpkeep:
    """Implements `domain.delivery_rows.DeliveryUpkeep`."""

    def __init__(self, connection: sqlite3.Connection, *, sealer: Sealer) -> None:
        self._sql = Statements(connection, _SQL)
        self._sealer = sealer

    async def release_lapsed(self, *, now: datetime, limit: int) -> int:
        return self._sql.change("release_lapsed", now=from_instant(now), limit=limit)

    async def release_abandoned(self, *, owner: str, limit: int) -> int:
        return self._sql.change("release_abandoned", owner=owner, limit=limit)

    async def give_up_held(self, *, now: datetime, limit: int) -> Sequence[Delivery]:
        ended = [row["id"] for row in self._sql.all("give_up_held", now=from_instant(now), limit=limit)]
        return [to_delivery(row, self._sealer) for row in self._sql.all("by_ids", ids=from_json(ended))]

    async def to_release(self, *, limit: int, after: str = "") -> Page[WebhookId, str]:
        return _wanted(self._sql.all("to_release", scan=LANES_SCANNED_MAX, after=after), limit=limit)

    async def to_probe(self, *, now: datetime, limit: int, after: str = "") -> Page[WebhookId, str]:
        rows = self._sql.all("to_probe", now=from_instant(now), scan=LANES_SCANNED_MAX, after=after)
        return _wanted(rows, limit=limit)


def _wanted(visited: Sequence[sqlite3.Row], *, limit: int) -> Page[WebhookId, str]:
    wanted = [row["id"] for row in visited if row["wanted"]]
    if len(wanted) > limit:
        return Page(wanted[:limit], next_place=wanted[limit - 1])
    return Page(wanted, next_place=visited[-1]["id"] if len(visited) == LANES_SCANNED_MAX else None)
