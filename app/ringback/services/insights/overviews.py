"""Overviews: the hourly counts, with what has happened since they were written, and what is open now."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.errors import InvalidRequest
from ringback.domain.insight_rows import ALL_UPSTREAMS, Fact, FactStream, HourCounts, HourKey, HourRange, count_facts
from ringback.domain.insights import (
    HOUR,
    OVERVIEW_HOURS_MAX,
    CountedLabel,
    HourInsights,
    InsightsOverview,
    UpstreamInsights,
    describe_hour,
    describe_upstream,
    hour_of,
    merge_counts,
)
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import ALL_PRINCIPALS, Caller, Principal

UPSTREAM_HOURS_MAX: Final = 24
"""The hours that the counts of upstreams cover at most: one row an hour for each upstream."""
TAIL_ROWS_MAX: Final = 1_000
"""Rows of each stream that are counted because the hourly rows do not have them yet: some ten milliseconds in all."""
HOURS_BETWEEN_PAUSES: Final = 50
"""Hours that are read without a pause of the event loop: about a millisecond."""
TAIL_TTL_SECONDS: Final = 3.0
"""How long these counts stay valid: any number of viewers cause one count in three seconds, a hundredth of a core."""


class OverviewReader:
    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._tail = _CountedTail(store=store, clock=clock)

    async def read_overview(self, caller: Caller, *, hours: int, upstreams: Sequence[str]) -> InsightsOverview:
        if not 1 <= hours <= OVERVIEW_HOURS_MAX:
            raise InvalidRequest(f"'hours' must be between 1 and {OVERVIEW_HOURS_MAX}.")
        principal = caller.listed_principal
        tail = await self._tail.count()
        return await self._store.scan(
            caller.principal, lambda tx: _read_overview(tx, principal, tail, hours=hours, upstreams=upstreams)
        )


class _CountedTail:
    """Counts what the hourly rows do not have yet. Concurrent readers share one count."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._task: asyncio.Task[HourCounts] | None = None
        self._counted_at = 0.0

    async def count(self) -> HourCounts:
        if self._task is None or (self._task.done() and not self._is_fresh()):
            self._task = asyncio.create_task(self._run(), name="count-tail")
        return await asyncio.shield(self._task)

    def _is_fresh(self) -> bool:
        assert self._task is not None  # noqa: S101 - the caller has checked it
        is_failed = self._task.cancelled() or self._task.exception() is not None
        return not is_failed and self._clock.monotonic() - self._counted_at < TAIL_TTL_SECONDS

    async def _run(self) -> HourCounts:
        counted = await self._store.scan(None, _count_tail)
        self._counted_at = self._clock.monotonic()
        return counted


async def _count_tail(tx: Transaction) -> HourCounts:
    positions = await tx.insights.get_positions()
    facts: list[Fact] = []
    for stream in FactStream:
        facts += (await tx.insights.list_facts(stream, positions.get(stream), until=None, limit=TAIL_ROWS_MAX)).facts
        await tx.pause()
    return count_facts(facts)


async def _read_overview(
    tx: Transaction, principal: Principal | None, tail: HourCounts, *, hours: int, upstreams: Sequence[str]
) -> InsightsOverview:
    now = tx.now()
    within = _last_hours(now, hours)
    owner = principal or ALL_PRINCIPALS
    stored = await tx.insights.list_hours(principal, within)
    described: list[HourInsights] = []
    for start in (within.since + number * HOUR for number in range(hours)):
        counts = _merge(stored.get(start), tail.get(HourKey(owner, ALL_UPSTREAMS, start)))
        described.append(describe_hour(start, counts))
        if len(described) % HOURS_BETWEEN_PAUSES == 0:
            await tx.pause()
    work = await tx.open_work.count_open(principal, upstreams)
    return InsightsOverview(
        since=within.since,
        until=now,
        hours=described,
        upstreams=await _read_upstreams(tx, principal, tail, upstreams, hours=min(hours, UPSTREAM_HOURS_MAX)),
        open_calls=work.open_calls,
        queued_calls=work.queued_calls,
        scheduled_calls=work.scheduled_calls,
        open_deliveries=work.open_deliveries,
        dead_deliveries=work.dead_deliveries,
        failing_webhooks=work.failing_webhooks,
    )


async def _read_upstreams(
    tx: Transaction, principal: Principal | None, tail: HourCounts, upstreams: Sequence[str], *, hours: int
) -> Sequence[UpstreamInsights]:
    """Those with calls, the slowest first."""
    within = _last_hours(tx.now(), hours)
    counts = {
        name: Counter(found) for name, found in (await _list_upstream_hours(tx, principal, upstreams, within)).items()
    }
    for key, more in tail.items():
        if key.principal == (principal or ALL_PRINCIPALS) and key.upstream in upstreams and key.hour >= within.since:
            merge_counts(counts.setdefault(key.upstream, Counter()), more)
    described = [describe_upstream(name, found) for name, found in counts.items()]
    return sorted(described, key=lambda each: (-(each.call_duration.percentile_ms(0.95) or 0), each.upstream))


async def _list_upstream_hours(
    tx: Transaction, principal: Principal | None, upstreams: Sequence[str], within: HourRange
) -> Mapping[str, Mapping[CountedLabel, int]]:
    return await tx.insights.list_upstream_hours(principal, upstreams, within) if upstreams else {}


def _last_hours(now: datetime, hours: int) -> HourRange:
    until = hour_of(now) + HOUR
    return HourRange(since=until - hours * HOUR, until=until)


def _merge(
    stored: Mapping[CountedLabel, int] | None, more: Mapping[CountedLabel, int] | None
) -> Mapping[CountedLabel, int]:
    if not stored or not more:
        return stored or more or {}
    merged = Counter(stored)
    merge_counts(merged, more)
    return merged
