"""Events, as rows."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.cursor import Page
from ringback.domain.event import Event, EventName
from ringback.domain.event_rows import EventFilter
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal
from ringback.storage.codec import instant_to_column, json_to_column
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements
from ringback.storage.sqlite.event_places import SqliteEventLog
from ringback.storage.sqlite.paging import ROWS_SCANNED_MAX

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/events.sql")
_MAX_SEQ: Final = 2**63 - 1
"""Behind every place: the largest integer that SQLite holds."""


class SqliteEvents:
    """Implements `domain.event_rows.EventRows`. There is one writer, so every log is locked while a unit of work runs."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)
        self._log_rows = SqliteEventLog(connection)

    async def reserve_seqs(self, principal: Principal, count: int) -> int:
        row = self._sql.fetch_one("reserve", principal=principal, count=count)
        if row is None:
            self._sql.execute("begin", principal=principal, count=count)
            return 1
        return row["seq"] - count + 1

    async def insert(self, events: Sequence[Event]) -> None:
        self._sql.execute_many("insert", [_event_to_row(event) for event in events])

    async def list_after(self, principal: Principal, seq: int, where: EventFilter, *, limit: int) -> Sequence[Event]:
        return self._select_after(principal, seq, where, until=_MAX_SEQ, limit=limit)

    async def list_page(self, principal: Principal, seq: int, where: EventFilter, *, limit: int) -> Page[Event, int]:
        head = await self._log_rows.get_head(principal)
        until = min(head, self._scan_limit_seq(seq, where, scan=max(ROWS_SCANNED_MAX, limit + 1)))
        found = self._select_after(principal, seq, where, until=until, limit=limit + 1)
        if len(found) > limit:
            return Page(found[:limit], next_position=found[limit - 1].seq)
        if until >= head or (where.call_id is not None and not self._is_owner(principal, where.call_id)):
            return Page(found, next_position=None)
        return Page(found, next_position=until)

    def _is_owner(self, principal: Principal, call_id: CallId) -> bool:
        row = self._sql.fetch_one("owner_of_call", call_id=call_id)
        return row is not None and row["principal"] == principal

    def _scan_limit_seq(self, seq: int, where: EventFilter, *, scan: int) -> int:
        """The last place that a look may come to which visits so many events."""
        if where.call_id is None:
            return seq + scan
        row = self._sql.fetch_one("end_of_call_scan", call_id=where.call_id, seq=seq, scan=scan)
        return _MAX_SEQ if row is None else row["seq"]

    def _select_after(
        self, principal: Principal, seq: int, where: EventFilter, *, until: int, limit: int
    ) -> list[Event]:
        rows = self._sql.fetch_all(
            "after" if where.call_id is None else "after_of_call",
            principal=principal,
            seq=seq,
            until=until,
            name=where.name,
            call_id=where.call_id,
            client_session_id=where.client_session_id,
            correlation_id=where.correlation_id,
            limit=limit,
        )
        return [_row_to_event(row) for row in rows]

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        removed = self._sql.fetch_all("remove", older_than=instant_to_column(cutoff), limit=limit)
        self._sql.execute_many("raise_horizon", [{"principal": row["principal"], "seq": row["seq"]} for row in removed])
        return len(removed)


def _event_to_row(event: Event) -> dict[str, Any]:
    return {
        "principal": event.principal,
        "seq": event.seq,
        "id": event.id,
        "name": event.name,
        "call_id": event.call_id,
        "client_session_id": event.client_session_id,
        "correlation_id": event.correlation_id,
        "upstream": event.upstream,
        "tool": event.tool,
        "data": json_to_column(event.data),
        "created_at": instant_to_column(event.created_at),
    }


def _row_to_event(row: sqlite3.Row) -> Event:
    return Event(
        id=row["id"],
        principal=row["principal"],
        seq=row["seq"],
        name=EventName(row["name"]),
        call_id=row["call_id"],
        client_session_id=row["client_session_id"],
        correlation_id=row["correlation_id"],
        upstream=row["upstream"],
        tool=row["tool"],
        data=jsontext.loads(row["data"]),
        created_at=from_epoch_milliseconds(row["created_at"]),
    )
