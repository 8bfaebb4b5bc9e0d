"""Deliveries as the janitor sees them: whose holder has died, whose time is over, and what is held for too long."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from ringback.domain.cursor import Page
from ringback.domain.delivery import Delivery
from ringback.domain.encryption import Sealer
from ringback.domain.ids import WebhookId
from ringback.storage.codec import instant_to_column, json_to_column
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements
from ringback.storage.sqlite.deliveries import row_to_delivery

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/delivery_upkeep.sql")
HELD_WEBHOOKS_SCANNED_MAX: Final = 1_000
"""Webhooks with something held that are visited in one unit of work: some 3 ms."""


class SqliteDeliveryMaintenance:
    """Implements `domain.delivery_rows.DeliveryUpkeep`."""

    def __init__(self, connection: sqlite3.Connection, *, sealer: Sealer) -> None:
        self._sql = Statements(connection, _SQL)
        self._sealer = sealer

    async def release_expired_leases(self, *, now: datetime, limit: int) -> int:
        return self._sql.execute("release_lapsed", now=instant_to_column(now), limit=limit)

    async def release_leases_of_others(self, *, owner: str, limit: int) -> int:
        return self._sql.execute("release_abandoned", owner=owner, limit=limit)

    async def give_up_expired_held(self, *, now: datetime, limit: int) -> Sequence[Delivery]:
        ended = [row["id"] for row in self._sql.fetch_all("give_up_held", now=instant_to_column(now), limit=limit)]
        return [row_to_delivery(row, self._sealer) for row in self._sql.fetch_all("by_ids", ids=json_to_column(ended))]

    async def list_webhooks_to_release(self, *, limit: int, after: str = "") -> Page[WebhookId, str]:
        return _selected_page(
            self._sql.fetch_all("to_release", scan=HELD_WEBHOOKS_SCANNED_MAX, after=after), limit=limit
        )

    async def list_webhooks_to_probe(self, *, now: datetime, limit: int, after: str = "") -> Page[WebhookId, str]:
        rows = self._sql.fetch_all("to_probe", now=instant_to_column(now), scan=HELD_WEBHOOKS_SCANNED_MAX, after=after)
        return _selected_page(rows, limit=limit)


def _selected_page(visited: Sequence[sqlite3.Row], *, limit: int) -> Page[WebhookId, str]:
    wanted = [row["id"] for row in visited if row["wanted"]]
    if len(wanted) > limit:
        return Page(wanted[:limit], next_position=wanted[limit - 1])
    return Page(wanted, next_position=visited[-1]["id"] if len(visited) == HELD_WEBHOOKS_SCANNED_MAX else None)
