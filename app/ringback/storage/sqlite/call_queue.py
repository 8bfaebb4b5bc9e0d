"""Calls as the runner and the janitor see them: leases, turns, and who has been left behind."""

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from ringback.domain.call import Call
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal
from ringback.storage.codec import instant_to_column, json_to_column
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.calls import row_to_call
from ringback.storage.sqlite.database import Statements

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/call_queue.sql")


class SqliteCallQueue:
    """Implements `domain.call_rows.CallQueue`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def lease_queued(
        self, upstream: str, *, owner: str, token: str, until: datetime, limit: int
    ) -> Sequence[Call]:
        queued = self._sql.fetch_all("queued", upstream=upstream, limit=limit)
        if not queued:
            return []
        ids = json_to_column([row["id"] for row in queued])
        self._sql.execute("lease", ids=ids, owner=owner, token=token, until=instant_to_column(until))
        served = _in_last_served_order([row["principal"] for row in queued])
        self._sql.execute("take_turns", upstream=upstream, principals=json_to_column(served))
        return [row_to_call(row) for row in self._sql.fetch_all("by_ids", ids=ids)]

    async def take_turn(self, upstream: str, principal: Principal) -> bool:
        return self._sql.execute("take_turn", upstream=upstream, principal=principal) == 1

    async def extend_leases(self, owner: str, call_ids: Collection[CallId], *, until: datetime) -> Sequence[CallId]:
        ids = json_to_column(list(call_ids))
        return [
            row["id"] for row in self._sql.fetch_all("extend", owner=owner, ids=ids, until=instant_to_column(until))
        ]

    async def find_lease_expired(self, *, now: datetime, limit: int) -> Sequence[Call]:
        return [row_to_call(row) for row in self._sql.fetch_all("lapsed", now=instant_to_column(now), limit=limit)]

    async def find_past_deadline(self, *, now: datetime, limit: int) -> Sequence[Call]:
        return [row_to_call(row) for row in self._sql.fetch_all("overdue", now=instant_to_column(now), limit=limit)]

    async def find_leased_by_others(self, *, owner: str, limit: int) -> Sequence[Call]:
        return [row_to_call(row) for row in self._sql.fetch_all("abandoned", owner=owner, limit=limit)]

    async def find_expired(self, *, now: datetime, limit: int) -> Sequence[Call]:
        return [row_to_call(row) for row in self._sql.fetch_all("expired", now=instant_to_column(now), limit=limit)]

    async def find_by_task(self, upstream: str, task_id: str) -> Call | None:
        row = self._sql.fetch_one("of_task", upstream=upstream, task_id=task_id)
        return None if row is None else row_to_call(row)


def _in_last_served_order(principals: Sequence[Principal]) -> list[Principal]:
    """Each once, in the order in which they were served for the last time."""
    return list(reversed(dict.fromkeys(reversed(principals))))
