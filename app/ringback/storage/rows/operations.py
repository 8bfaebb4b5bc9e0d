"""What the service keeps and measures for itself: usage counts, scheduling time, and when rows need the janitor."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from ringback.domain.call import CallStatus
from ringback.domain.clock import CONTINUED_AHEAD_SECONDS_MAX, from_epoch_milliseconds, seconds
from ringback.domain.delivery import DeliveryState
from ringback.domain.principal import Principal
from ringback.domain.upkeep import Upkeep
from ringback.domain.usage import QUEUES_VISITED_MAX, TOTALS_COUNTED_MAX, LogUsage, StoreTotals, Usage
from ringback.domain.webhook import FAILING_STATES
from ringback.storage.rows.columns import column_to_instant, instant_to_column
from ringback.storage.rows.unit import SqlRows

_UPKEEP_COLUMNS: Final = tuple(Upkeep)
"""In the order of the statement."""


class SqlUsage(SqlRows, noun="usage"):
    """Implements `domain.usage.UsageRows`. Triggers count calls and events, so a count reads at most a row for each status."""

    async def get_usage(self, principal: Principal, *, lock: bool = False) -> Usage:
        if lock:
            await self._sql.execute("lock_usage", principal=principal)
        (row,) = await self._sql.fetch_all("usage", principal=principal)
        return Usage(
            open_calls=row["open_calls"],
            stored_calls=row["stored_calls"],
            result_bytes=row["result_bytes"],
            argument_bytes=row["argument_bytes"],
            delivery_bytes=row["delivery_bytes"],
        )

    async def get_log_usage(self, principal: Principal) -> LogUsage:
        row = await self._sql.fetch_one("log_usage", principal=principal)
        if row is None:
            return LogUsage(event_bytes=0, delivery_bytes=0)
        return LogUsage(event_bytes=row["event_bytes"], delivery_bytes=row["delivery_bytes"])

    async def count_webhooks(self, principal: Principal, *, limit: int) -> int:
        (row,) = await self._sql.fetch_all("count_webhooks", principal=principal, limit=limit)
        return row["count"]

    async def count_totals(self) -> StoreTotals:
        (events,) = await self._sql.fetch_all("count_events")
        (subscriptions,) = await self._sql.fetch_all("count_subscriptions")
        calls = await self._count("calls_by_status", "status")
        failing = await self._count("failing_webhooks", "state", limit=TOTALS_COUNTED_MAX)
        deliveries = await self._count("open_deliveries", "state", limit=TOTALS_COUNTED_MAX)
        return StoreTotals(
            calls={status: calls.get(status, 0) for status in CallStatus},
            open_deliveries={DeliveryState(state): count for state, count in deliveries.items()},
            failing_webhooks={state: failing.get(state, 0) for state in FAILING_STATES},
            subscriptions=subscriptions["count"],
            events=events["count"],
        )

    async def oldest_queued_since(self) -> datetime | None:
        (row,) = await self._sql.fetch_all("oldest_queued_call", scan=QUEUES_VISITED_MAX)
        return None if row["queued_since"] is None else column_to_instant(row["queued_since"])

    async def count_queued(self) -> Mapping[str, int]:
        return await self._count("queued_calls", "upstream", scan=QUEUES_VISITED_MAX, limit=TOTALS_COUNTED_MAX)

    async def count_own_queued(self, principal: Principal, upstreams: Sequence[str]) -> Mapping[str, int]:
        counts = await self._count(
            "queued_calls_of_principal",
            "upstream",
            principal=principal,
            upstreams=self._sql.array(upstreams),
            limit=TOTALS_COUNTED_MAX,
        )
        return {upstream: count for upstream, count in counts.items() if count}

    async def first_lease_end(self) -> datetime | None:
        (row,) = await self._sql.fetch_all("first_lease_end")
        return None if row["lease_until"] is None else column_to_instant(row["lease_until"])

    async def _count(self, statement: str, column: str, **parameters: Any) -> Mapping[str, int]:
        return {row[column]: row["count"] for row in await self._sql.fetch_all(statement, **parameters)}


class SqlSchedulingTime(SqlRows, noun="scheduling_time"):
    """Implements `domain.ports.SchedulingTimeRow`."""

    async def load(self) -> datetime | None:
        row = await self._sql.fetch_one("load")
        return None if row is None else column_to_instant(row["instant"])

    async def save(self, now: datetime) -> None:
        instant_max = instant_to_column(now + seconds(CONTINUED_AHEAD_SECONDS_MAX))
        await self._sql.execute("save", now=instant_to_column(now), instant_max=instant_max)


class SqlUpkeep(SqlRows, noun="upkeep"):
    """Implements `domain.upkeep.UpkeepRows`."""

    async def find_first(self, *, due_after: datetime, latest: datetime) -> Mapping[Upkeep, datetime]:
        late = {"due_after": instant_to_column(due_after), "latest": instant_to_column(latest)}
        (row,) = await self._sql.fetch_all("first", **late)
        return {
            kind: from_epoch_milliseconds(instant)
            for kind, instant in zip(_UPKEEP_COLUMNS, row, strict=True)
            if instant is not None
        }

    async def shorten_call_leases(self, *, ends_after: datetime, until: datetime, limit: int) -> int:
        times = {"ends_after": instant_to_column(ends_after), "until": instant_to_column(until)}
        return await self._sql.execute("shorten_call_leases", **times, limit=limit)

    async def shorten_delivery_leases(self, *, ends_after: datetime, until: datetime, limit: int) -> int:
        times = {"ends_after": instant_to_column(ends_after), "until": instant_to_column(until)}
        return await self._sql.execute("shorten_delivery_leases", **times, limit=limit)
