"""Events, and the log of each principal: its head, its retention floor, and the places of its events."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from ringback.domain import json_size
from ringback.domain.call_rows import REMOVED_BYTES_MAX
from ringback.domain.clock import epoch_milliseconds, from_epoch_milliseconds
from ringback.domain.clock_confirmation import latest_of_right_clock
from ringback.domain.cursor import EventTime, Page
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter, LogBounds, ReservedPlaces
from ringback.domain.ids import CallId, EventId
from ringback.domain.principal import Principal
from ringback.storage.rows.columns import RECORDS, instant_to_column
from ringback.storage.rows.paging import ROWS_SCANNED_MAX
from ringback.storage.rows.statements import Row, Statements
from ringback.storage.rows.unit import SqlRows

_EVENT: Final = RECORDS.event
_MAX_SEQ: Final = 2**63 - 1
"""Behind every place: the largest integer that SQLite stores."""
LATEST_SCANNED_MAX: Final = 2_000
"""Events visited for one page of those of all principals. They are apart from each other in the table: some 50 µs each
(measured on SQLite, with 3 KB of data an event and two busy cores), where those of one log take less than one."""

PAGE_BYTES_MAX: Final = 2 * 1024 * 1024
"""Bytes that the decoded data of one page's events take, but at least one event: some 20 ms. The 64 KiB of data that an event
may have can be 21,000 objects, which take 1.4 MB and 10 ms."""


class SqlEvents(SqlRows, noun="events"):
    """Implements `domain.event_rows.EventRows`."""

    async def reserve_seqs(self, principal: Principal, count: int) -> int:
        return (await self.reserve_places(principal, count)).first_seq

    async def reserve_places(self, principal: Principal, count: int) -> ReservedPlaces:
        key = {"principal": principal, "count": count, "now": instant_to_column(self._unit.now)}
        latest = instant_to_column(latest_of_right_clock(self._unit.now))
        row = await self._sql.fetch_one("reserve_seqs", **key, latest=latest)
        if row is None:
            await self._sql.execute("begin_log", **key)
            return ReservedPlaces(1, self._unit.now)
        return ReservedPlaces(row["seq"] - count + 1, from_epoch_milliseconds(row["last_at"]))

    async def insert(self, events: Sequence[Event]) -> None:
        await self._sql.execute_many("insert", [_EVENT.encode(event) for event in events])

    async def find_known_ids(
        self, principal: Principal, event_ids: Collection[EventId], *, topic: str | None
    ) -> Collection[EventId]:
        rows = await self._sql.fetch_all(
            "known_ids", principal=principal, ids=self._sql.array(sorted(event_ids)), topic=topic or ""
        )
        return {EventId(row["id"]) for row in rows}

    async def list_after(self, principal: Principal, seq: int, where: EventFilter, *, limit: int) -> Sequence[Event]:
        name, parameters = _after(principal, seq, where, until=_MAX_SEQ)
        return await self._sql.fetch_records(name, _EVENT, limit=limit, **parameters)

    async def list_page(self, principal: Principal, seq: int, where: EventFilter, *, limit: int) -> Page[Event, int]:
        log = SqlEventLog(self._unit)
        head = await log.get_head(principal)
        until = min(head, await self._scan_limit_seq(seq, where, scan=max(ROWS_SCANNED_MAX, limit + 1)))
        found, has_more = await _fetch_page(self._sql, *_after(principal, seq, where, until=until), limit=limit)
        if has_more:
            return Page(_with_uri(found, where), next_position=found[-1].seq)
        if until >= head or (where.call_id is not None and not await log.has_call(principal, where.call_id)):
            return Page(_with_uri(found, where), next_position=None)
        return Page(_with_uri(found, where), next_position=until)

    async def list_latest(
        self, where: EventFilter, *, position: EventTime | None, limit: int
    ) -> Page[Event, EventTime]:
        scan = max(LATEST_SCANNED_MAX, limit + 1)
        newest = position or EventTime(_MAX_SEQ, "", 0)
        before = {"instant": newest.milliseconds, "before_principal": newest.principal, "before_seq": newest.seq}
        parameters = {**before, **_encode_filter(where), "scan": scan}
        found, has_more = await _fetch_page(self._sql, "latest", parameters, limit=limit)
        if has_more:
            last = found[-1]
            return Page(found, next_position=EventTime(epoch_milliseconds(last.created_at), last.principal, last.seq))
        end = await self._sql.fetch_one("end_of_latest", **before, scan=scan)
        return Page(found, next_position=None if end is None else _event_time(end))

    async def _scan_limit_seq(self, seq: int, where: EventFilter, *, scan: int) -> int:
        """The last place of a scan that visits this many events."""
        if where.call_id is None:
            return seq + scan
        row = await self._sql.fetch_one("end_of_call_scan", call_id=where.call_id, seq=seq, scan=scan)
        return _MAX_SEQ if row is None else row["seq"]

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        bounds = {"limit": limit, "bytes_max": REMOVED_BYTES_MAX}
        removed = await self._sql.fetch_all("remove", older_than=instant_to_column(cutoff), **bounds)
        floors: dict[str, int] = {}
        for row in removed:
            floors[row["principal"]] = max(row["seq"], floors.get(row["principal"], 0))
        # Sorted, as all units lock several logs.
        floor_rows = [{"principal": principal, "seq": seq} for principal, seq in sorted(floors.items())]
        await self._sql.execute_many("raise_retention_floor", floor_rows)
        return len(removed)


def _after(principal: Principal, seq: int, where: EventFilter, *, until: int) -> tuple[str, Mapping[str, Any]]:
    """The statement that selects these events, and its parameters."""
    return "after" if where.call_id is None else "after_of_call", {
        "principal": principal,
        "seq": seq,
        "until": until,
        "topic": where.topic,
        **_encode_filter(where),
    }


def _encode_filter(where: EventFilter) -> dict[str, str | None]:
    return {
        "name": where.name,
        "call_id": where.call_id,
        "client_session_id": where.client_session_id,
        "correlation_id": where.correlation_id,
        "upstream": where.upstream,
        "tool": where.tool,
    }


async def _fetch_page(
    sql: Statements, name: str, parameters: Mapping[str, Any], *, limit: int
) -> tuple[list[Event], bool]:
    """Up to `limit` events, fewer if their data is large, and whether the statement selects more."""
    rows = await sql.fetch_all(name, limit=limit + 1, **parameters)
    count = min(limit, _count_events_of_page([row["data"] for row in rows]))
    return [_EVENT.decode(row) for row in rows[:count]], count < len(rows)


def _count_events_of_page(data: Sequence[str]) -> int:
    size = 0
    for count, text in enumerate(data):
        size += json_size.estimate_decoded_bytes(text.encode())
        if count and size > PAGE_BYTES_MAX:
            return count
    return len(data)


def _event_time(row: Row) -> EventTime:
    return EventTime(row["created_at"], row["principal"], row["seq"])


def _with_uri(found: Sequence[Event], where: EventFilter) -> Sequence[Event]:
    """The events that match the filter of URIs too. No column has the URI: few events have one, and the page is bounded."""
    return found if where.resource_uris is None else [event for event in found if where.matches(event)]


class SqlEventLog(SqlRows, noun="event_log"):
    """Implements `domain.event_rows.EventLogRows`."""

    async def get_head(self, principal: Principal, *, lock: bool = False) -> int:
        row = await self._sql.fetch_one("locked_head" if lock else "head", principal=principal)
        return 0 if row is None else row["seq"]

    async def get_retention_floor(self, principal: Principal) -> int:
        return (await self.get_bounds(principal)).retention_floor

    async def get_bounds(self, principal: Principal) -> LogBounds:
        row = await self._sql.fetch_one("head", principal=principal)
        return LogBounds(0, 0) if row is None else LogBounds(row["retention_floor"], row["seq"])

    async def get_event_ids(self, principal: Principal, seqs: Collection[int]) -> Mapping[int, EventId]:
        rows = await self._sql.fetch_all("ids_at", principal=principal, seqs=self._sql.array(sorted(seqs)))
        return {row["seq"]: row["id"] for row in rows}

    async def get_event_id(self, principal: Principal, seq: int) -> EventId | None:
        row = await self._sql.fetch_one("id_at", principal=principal, seq=seq)
        return None if row is None else EventId(row["id"])

    async def last_seq_before(self, principal: Principal, instant: datetime) -> int:
        row = await self._sql.fetch_one("last_before", principal=principal, instant=instant_to_column(instant))
        return 0 if row is None else row["seq"]

    async def list_before(self, principal: Principal, seq: int, where: EventFilter, *, limit: int) -> Page[Event, int]:
        name = "before" if where.call_id is None else "before_of_call"
        scan = max(ROWS_SCANNED_MAX, limit + 1)
        place = {"principal": principal, "call_id": where.call_id, "seq": seq, "scan": scan}
        found, has_more = await _fetch_page(self._sql, name, {**place, **_encode_filter(where)}, limit=limit)
        if has_more:
            return Page(found, next_position=found[-1].seq)
        end = await self._sql.fetch_one(f"end_of_{name}", **place)
        if end is None or (where.call_id is not None and not await self.has_call(principal, where.call_id)):
            return Page(found, next_position=None)
        return Page(found, next_position=end["seq"])

    async def has_call(self, principal: Principal, call_id: CallId) -> bool:
        """Whether the principal's log has events of this call."""
        row = await self._sql.fetch_one("owner_of_call", call_id=call_id)
        return row is not None and row["principal"] == principal

    async def find_event(self, principal: Principal, event_id: str, *, after_seq: int, until_seq: int) -> Event | None:
        key = {"principal": principal, "event_id": event_id}
        if until_seq > after_seq:
            found = await self._sql.fetch_records("find", _EVENT, seq=after_seq, until=until_seq, **key)
            if found:
                return found[0]
        return next(iter(await self._sql.fetch_records("find_external", _EVENT, **key)), None)
