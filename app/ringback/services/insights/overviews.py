"""Overviews: the hourly counts, with what has happened since they were written, and what is open now."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.errors import InvalidRequest
from ringback.domain.insight_rows import ALL_UPSTREAMS, FactStream, HourCounts, HourRange, count_facts
from ringback.domain.insights import (
    HOUR,
    OVERVIEW_HOURS_MAX,
    CountedLabel,
    InsightsOverview,
    OpenWork,
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
TAIL_ROWS_MAX: Final = 2_000
"""Rows of each stream that are counted because the hourly rows do not have them yet: some ten milliseconds in all."""
TAIL_TTL_SECONDS: Final = 1.0
"""How long these counts stay valid. Any number of viewers cause one count a second."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the store has for one overview."""

    now: datetime
    hours: Mapping[datetime, Mapping[CountedLabel, int]]
    upstreams: Mapping[str, Mapping[CountedLabel, int]]
    open_work: OpenWork


class OverviewReader:
    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._tail = _CountedTail(store=store, clock=clock)

    async def read_overview(self, caller: Caller, *, hours: int, upstreams: Sequence[str]) -> InsightsOverview:
        if not 1 <= hours <= OVERVIEW_HOURS_MAX:
            raise InvalidRequest(f"'hours' must be between 1 and {OVERVIEW_HOURS_MAX}.")
        principal = caller.listed_principal
        tail = await self._tail.count()
        stored = await self._store.scan(
            caller.principal, lambda tx: _read_stored(tx, principal, hours=hours, upstreams=upstreams)
        )
        return _build_overview(stored, _own_part(tail, principal), hours=hours, upstreams=upstreams)


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
    batches = [
        await tx.insights.list_facts(stream, positions.get(stream), until=None, limit=TAIL_ROWS_MAX)
        for stream in FactStream
    ]
    return count_facts([fact for batch in batches for fact in batch.facts])


async def _read_stored(
    tx: Transaction, principal: Principal | None, *, hours: int, upstreams: Sequence[str]
) -> _Stored:
    now = tx.now()
    return _Stored(
        now=now,
        hours=await tx.insights.list_hours(principal, _last_hours(now, hours)),
        upstreams=await tx.insights.list_upstream_hours(
            principal, upstreams, _last_hours(now, min(hours, UPSTREAM_HOURS_MAX))
        ),
        open_work=await tx.open_work.count_open(principal, upstreams),
    )


def _last_hours(now: datetime, hours: int) -> HourRange:
    until = hour_of(now) + HOUR
    return HourRange(since=until - hours * HOUR, until=until)


def _own_part(counts: HourCounts, principal: Principal | None) -> HourCounts:
    wanted = principal or ALL_PRINCIPALS
    return {key: counted for key, counted in counts.items() if key.principal == wanted}


def _build_overview(stored: _Stored, tail: HourCounts, *, hours: int, upstreams: Sequence[str]) -> InsightsOverview:
    within = _last_hours(stored.now, hours)
    starts = [within.since + number * HOUR for number in range(hours)]
    work = stored.open_work
    return InsightsOverview(
        since=within.since,
        until=stored.now,
        hours=[
            describe_hour(start, _merge(stored.hours.get(start), _tail_of(tail, ALL_UPSTREAMS, start)))
            for start in starts
        ],
        upstreams=_rank_upstreams(
            [
                describe_upstream(name, _merge(stored.upstreams.get(name), *_tails_of(tail, name, stored.now, hours)))
                for name in upstreams
            ]
        ),
        open_calls=work.open_calls,
        queued_calls=work.queued_calls,
        open_deliveries=work.open_deliveries,
        dead_deliveries=work.dead_deliveries,
        failing_webhooks=work.failing_webhooks,
    )


def _tail_of(tail: HourCounts, upstream: str, hour: datetime) -> Mapping[CountedLabel, int] | None:
    return next((counts for key, counts in tail.items() if (key.upstream, key.hour) == (upstream, hour)), None)


def _tails_of(tail: HourCounts, upstream: str, now: datetime, hours: int) -> list[Mapping[CountedLabel, int]]:
    since = _last_hours(now, min(hours, UPSTREAM_HOURS_MAX)).since
    return [counts for key, counts in tail.items() if key.upstream == upstream and key.hour >= since]


def _merge(*counts: Mapping[CountedLabel, int] | None) -> Mapping[CountedLabel, int]:
    merged: Counter[CountedLabel] = Counter()
    for each in counts:
        if each is not None:
            merge_counts(merged, each)
    return merged


def _rank_upstreams(upstreams: Sequence[UpstreamInsights]) -> list[UpstreamInsights]:
    """Those with calls, the slowest first."""
    used = [each for each in upstreams if each.calls_started or each.calls_by_outcome]
    return sorted(used, key=lambda each: (-(each.call_duration.percentile_ms(0.95) or 0), each.upstream))
