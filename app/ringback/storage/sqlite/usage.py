"""How much there is of what: for quotas, and for whoever watches the service."""

import sqlite3
from typing import Final

from ringback.domain.call import CallStatus
from ringback.domain.delivery import DeliveryState
from ringback.domain.principal import Principal
from ringback.domain.usage import StoreTotals, Usage
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/usage.sql")


class SqliteUsage:
    """Implements `domain.ports.UsageRows`. Calls are counted by triggers, so that asking costs a row for each status."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def get_usage(self, principal: Principal) -> Usage:
        (row,) = self._sql.fetch_all("of", principal=principal)
        return Usage(open_calls=row["open_calls"], result_bytes=row["result_bytes"])

    async def count_webhooks(self, principal: Principal, *, limit: int) -> int:
        (row,) = self._sql.fetch_all("webhooks", principal=principal, limit=limit)
        return row["count"]

    async def count_totals(self) -> StoreTotals:
        (events,) = self._sql.fetch_all("events")
        calls = {CallStatus(row["status"]): row["count"] for row in self._sql.fetch_all("calls_by_status")}
        return StoreTotals(
            calls={status: calls.get(status, 0) for status in CallStatus},
            open_deliveries={
                DeliveryState(row["state"]): row["count"] for row in self._sql.fetch_all("open_deliveries")
            },
            events=events["count"],
        )
