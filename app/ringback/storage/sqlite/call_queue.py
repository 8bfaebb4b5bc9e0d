"""Calls as the runner and the janitor see them: leases, turns, and who has been left behind."""

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from ringback.domain.call import Call
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal
from ringback.storage.queries import load
from ringback.storage.sqlite.calls import to_call
from ringback.storage.sqlite.columns import from_instant, from_json
from ringback.storage.sqlite.database import Statements

_SQL: Final = load("ringback.storage.sqlite", "sql/call_queue.sql")


class SqliteCallQueue:
    """Implements `domain.call_rows.CallQueue`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def lease(self, upstream: str, *, owner: str, token: str, until: datetime, limit: int) -> Sequence[Call]:
        queued = self._sql.all("queued", upstream=upstream, limit=limit)
        if not queued:
            return []
        ids = from_json([row["id"] for row in queued])
        self._sql.change("lease", ids=ids, owner=owner, token=token, until=from_instant(until))
        served = _in_order_of_last([row["principal"] for row in queued])
        self._sql.change("take_turns", upstream=upstream, principals=from_json(served))
        return [to_call(row) for row in self._sql.all("by_ids", ids=ids)]

    async def take_turn(self, upstream: str, principal: Principal) -> bool:
        return self._sql.change("take_turn", upstream=upstream, principal=principal) == 1

    async def extend(self, owner: str, call_ids: Collection[CallId], *, until: datetime) -> Sequence[CallId]:
        ids = from_json(list(call_ids))
        return [row["id"] for row in self._sql.all("extend", owner=owner, ids=ids, until=from_instant(until))]

    async def lapsed(self, *, now: datetime, limit: int) -> Sequence[Call]:
        return [to_call(row) for row in self._sql.all("lapsed", now=from_instant(now), limit=limit)]

    async def overdue(self, *, now: datetime, limit: int) -> Sequence[Call]:
        return [to_call(row) for row in self._sql.all("overdue", now=from_instant(now), limit=limit)]

    async def abandoned(self, *, owner: str, limit: int) -> Sequence[Call]:
        return [to_call(row) for row in self._sql.all("abandoned", owner=owner, limit=limit)]

    async def expired(self, *, now: datetime, limit: int) -> Sequence[Call]:
        return [to_call(row) for row in self._sql.all("expired", now=from_instant(now), limit=limit)]

    async def of_task(self, upstream: str, task_id: str) -> Call | None:
        row = self._sql.one("of_task", upstream=upstream, task_id=task_id)
        return None if row is None else to_call(row)


def _in_order_of_last(principals: Sequence[Principal]) -> list[Principal]:
    """Each once, in the order in which they were served for the last time."""
    return list(reversed(dict.fromkeys(reversed(principals))))
