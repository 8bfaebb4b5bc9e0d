"""Hourly counts and what they are counted from; open work; client sessions."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.call import OPEN_CALL_STATUSES, CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.clock import epoch_milliseconds, from_epoch_milliseconds
from ringback.domain.cursor import Page
from ringback.domain.delivery import OPEN_STATES, DeliveryState
from ringback.domain.insight_rows import (
    OPEN_COUNTED_MAX,
    FactBatch,
    FactStream,
    HourCounts,
    HourRange,
)
from ringback.domain.insights import (
    LISTED_CALLS_COUNTED_MAX,
    ClientSession,
    CountedLabel,
    OpenWork,
    SessionCounts,
    merge_counts,
)
from ringback.domain.principal import ALL_PRINCIPALS, Principal
from ringback.domain.usage import QUEUES_VISITED_MAX
from ringback.storage.rows.columns import instant_to_column, json_to_column
from ringback.storage.rows.insight_facts import STREAM_FORMS
from ringback.storage.rows.operations import SqlUsage
from ringback.storage.rows.paging import fetch_scanned_page
from ringback.storage.rows.statements import Row
from ringback.storage.rows.unit import SqlRows

_WEBHOOKS_SCANNED_MAX: Final = 1_000
"""Webhooks of one principal whose open deliveries are counted: registered ones, and as many of its newest ones."""


class SqlInsights(SqlRows, noun="insights"):
    """Implements `domain.insight_rows.InsightRows`."""

    async def get_positions(self, *, lock: bool = False) -> Mapping[str, str]:
        if lock:
            await self._sql.execute("lock")
        row = await self._sql.fetch_one("positions")
        return {} if row is None else jsontext.loads(row["positions"])

    async def save_positions(self, positions: Mapping[str, str]) -> None:
        await self._sql.execute("save_positions", positions=json_to_column(positions))

    async def list_facts(
        self, stream: FactStream, position: str | None, *, until: datetime | None, limit: int
    ) -> FactBatch:
        form = STREAM_FORMS[stream]
        rows = await self._sql.fetch_all(str(stream), limit=limit, **form.encode_range(position, until))
        found = [(fact, form.decode_position(row)) for row in rows if (fact := form.decode_fact(row)) is not None]
        return FactBatch(
            facts=[fact for fact, _ in found],
            positions=[position for _, position in found],
            position=form.decode_position(rows[-1]) if rows else None,
            is_full=len(rows) == limit,
        )

    async def add_counts(self, counts: HourCounts) -> None:
        merged = {(*key[:2], epoch_milliseconds(key.hour)): Counter(more) for key, more in counts.items()}
        for row in await self._sql.fetch_all("hours_of_keys", keys=json_to_column(sorted(merged))):
            stored = jsontext.loads(row["counts"])
            merge_counts(merged[row["principal"], row["upstream"], row["hour"]], stored)
        await self._sql.execute_many(
            "save_hour",
            [
                {"principal": principal, "upstream": upstream, "hour": hour, "counts": json_to_column(merged_counts)}
                for (principal, upstream, hour), merged_counts in sorted(merged.items())
            ],
        )

    async def list_erased(self, principals: Collection[Principal], *, since: datetime) -> Collection[Principal]:
        rows = await self._sql.fetch_all(
            "erased", principals=self._sql.array(sorted(principals)), since=instant_to_column(since)
        )
        return {Principal(row["principal"]) for row in rows}

    async def list_hours(
        self, principal: Principal | None, hours: HourRange
    ) -> Mapping[datetime, Mapping[CountedLabel, int]]:
        rows = await self._sql.fetch_all("hours", principal=principal or ALL_PRINCIPALS, **_range(hours))
        return {from_epoch_milliseconds(row["hour"]): jsontext.loads(row["counts"]) for row in rows}

    async def list_upstream_hours(
        self, principal: Principal | None, upstreams: Sequence[str], hours: HourRange
    ) -> Mapping[str, Mapping[CountedLabel, int]]:
        rows = await self._sql.fetch_all(
            "hours_of_upstreams",
            principal=principal or ALL_PRINCIPALS,
            upstreams=self._sql.array(upstreams),
            **_range(hours),
        )
        sums: dict[str, Counter[CountedLabel]] = {}
        for row in rows:
            merge_counts(sums.setdefault(row["upstream"], Counter()), jsontext.loads(row["counts"]))
        return sums

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        return await self._sql.execute("remove", older_than=instant_to_column(cutoff), limit=limit)


def _range(hours: HourRange) -> dict[str, Any]:
    return {"since": instant_to_column(hours.since), "until": instant_to_column(hours.until)}


class SqlOpenWork(SqlRows, noun="open_work"):
    """Implements `domain.insight_rows.OpenWorkRows`."""

    async def count_open(self, principal: Principal | None) -> OpenWork:
        if principal is None:
            return await self._count_all()
        calls = await self._count_by("calls_of_principal", "status", principal=principal)
        deliveries = await self._count_by(
            "deliveries_of_principal",
            "state",
            principal=principal,
            scan=_WEBHOOKS_SCANNED_MAX,
            limit=OPEN_COUNTED_MAX,
        )
        return _describe_open(
            calls,
            deliveries,
            queued=await self._count("queued_calls_of_principal", principal=principal, scan=QUEUES_VISITED_MAX),
            scheduled=await self._count("scheduled_calls_of_principal", principal=principal),
            dead=await self._count("dead_deliveries_of_principal", principal=principal),
            failing=await self._count("failing_webhooks_of_principal", principal=principal),
        )

    async def _count_all(self) -> OpenWork:
        totals = await SqlUsage(self._unit).count_totals()
        return _describe_open(
            {str(status): count for status, count in totals.calls.items()},
            {str(state): count for state, count in totals.open_deliveries.items()},
            queued=await self._count("queued_calls"),
            scheduled=await self._count("scheduled_calls"),
            dead=await self._count("dead_deliveries"),
            failing=sum(totals.failing_webhooks.values()),
        )

    async def _count(self, statement: str, **parameters: Any) -> int:
        (row,) = await self._sql.fetch_all(statement, limit=OPEN_COUNTED_MAX, **parameters)
        return row["count"]

    async def _count_by(self, statement: str, column: str, **parameters: Any) -> Mapping[str, int]:
        return {row[column]: row["count"] for row in await self._sql.fetch_all(statement, **parameters)}


def _describe_open(
    calls: Mapping[str, int], deliveries: Mapping[str, int], *, queued: int, scheduled: int, dead: int, failing: int
) -> OpenWork:
    return OpenWork(
        open_calls={status: calls.get(status, 0) for status in OPEN_CALL_STATUSES},
        queued_calls=queued,
        scheduled_calls=scheduled,
        open_deliveries={state: deliveries.get(state, 0) for state in DeliveryState if state in OPEN_STATES},
        dead_deliveries=dead,
        failing_webhooks=failing,
    )


class SqlClientSessions(SqlRows, noun="client_sessions"):
    """Implements `domain.insight_rows.ClientSessionRows`."""

    async def list_page(
        self, principal: Principal | None, *, position: str | None, limit: int
    ) -> Page[ClientSession, str]:
        return await fetch_scanned_page(
            self._sql,
            "page_of_all" if principal is None else "page",
            _decode_session,
            limit=limit,
            principal=principal,
            before=position,
            counted=LISTED_CALLS_COUNTED_MAX,
        )

    async def count_calls(self, principal: Principal, client_session_id: str, *, limit: int) -> SessionCounts | None:
        key = {"principal": principal, "client_session_id": client_session_id}
        (ends,) = await self._sql.fetch_all("ends_of_session", **key)
        if ends["first_call_at"] is None:
            return None
        statuses: Counter[CallStatus] = Counter()
        outcomes: Counter[CallOutcome] = Counter()
        resumed = answered = 0
        for row in await self._sql.fetch_all("count_calls", limit=limit + 1, **key):
            statuses[CallStatus(row["status"])] += row["count"]
            resumed += row["resumed"]
            answered += row["answered"]
            if row["outcome"] is not None:
                outcomes[CallOutcome(row["outcome"])] += row["count"]
        return SessionCounts(
            first_call_at=from_epoch_milliseconds(ends["first_call_at"]),
            last_call_at=from_epoch_milliseconds(ends["last_call_at"]),
            calls=min(statuses.total(), limit),
            is_complete=statuses.total() <= limit,
            calls_by_status=statuses,
            calls_by_outcome=outcomes,
            resumed_calls=resumed,
            answered_calls=answered,
        )


def _decode_session(row: Row) -> ClientSession:
    return ClientSession(
        client_session_id=row["client_session_id"],
        principal=row["principal"],
        first_call_at=from_epoch_milliseconds(row["first_call_at"]),
        last_call_at=from_epoch_milliseconds(row["last_call_at"]),
        last_call_id=row["id"],
        calls=row["calls"],
    )
