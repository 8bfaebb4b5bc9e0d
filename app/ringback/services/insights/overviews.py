"""Overviews: the hourly counts, with what has happened since they were written, and what is open now."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.errors import InvalidRequest
from ringback.domain.insight_rows import ALL_UPSTREAMS, HourCounts, HourKey, HourRange
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
from ringback.services.insights.tails import CountedTail, Tail
from ringback.services.scans import Scan, scan_for

UPSTREAM_HOURS_MAX: Final = 24
"""The hours that the counts of upstreams cover at most: one row an hour for each upstream."""
HOURS_BETWEEN_PAUSES: Final = 50
"""Hours that are read without a pause of the event loop: about a millisecond."""
READS_MAX: Final = 4
"""How often an overview is read at most because the janitor has written hourly rows between the tail and the overview."""


class OverviewReader:
    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._tail = CountedTail(store=store, clock=clock)

    async def read_overview(self, caller: Caller, *, hours: int, upstreams: Sequence[str]) -> InsightsOverview:
        scan = scan_for(self._store, caller.principal)
        return await self.scan_overview(scan, caller.listed_principal, hours=hours, upstreams=upstreams)

    async def scan_overview(
        self, scan: Scan, principal: Principal | None, *, hours: int, upstreams: Sequence[str]
    ) -> InsightsOverview:
        if not 1 <= hours <= OVERVIEW_HOURS_MAX:
            raise InvalidRequest(f"'hours' must be between 1 and {OVERVIEW_HOURS_MAX}.")
        tail = None
        for _ in range(READS_MAX):
            tail = await self._tail.count(outdated=tail)
            found = await scan(partial(_read_matching, principal, tail, hours=hours, upstreams=upstreams))
            if found is not None:
                return found
        return await scan(lambda tx: _read_overview(tx, principal, None, hours=hours, upstreams=upstreams))


async def _read_matching(
    principal: Principal | None, tail: Tail, tx: Transaction, *, hours: int, upstreams: Sequence[str]
) -> InsightsOverview | None:
    """None if hourly rows have been written since the tail was counted: they and the tail would count the same rows."""
    if await tx.insights.get_positions() != tail.positions:
        return None
    return await _read_overview(tx, principal, tail, hours=hours, upstreams=upstreams)


async def _read_overview(
    tx: Transaction, principal: Principal | None, tail: Tail | None, *, hours: int, upstreams: Sequence[str]
) -> InsightsOverview:
    """`tail`: None if the hourly rows are written faster than it can be counted."""
    newer: HourCounts = {} if tail is None else tail.counts
    now = tx.now()
    within = _last_hours(now, hours)
    owner = principal or ALL_PRINCIPALS
    stored = await tx.insights.list_hours(principal, within)
    described: list[HourInsights] = []
    for start in (within.since + number * HOUR for number in range(hours)):
        counts = _merge(stored.get(start), newer.get(HourKey(owner, ALL_UPSTREAMS, start)))
        described.append(describe_hour(start, counts))
        if len(described) % HOURS_BETWEEN_PAUSES == 0:
            await tx.pause()
    work = await tx.open_work.count_open(principal)
    return InsightsOverview(
        since=within.since,
        until=now,
        is_complete=tail is not None and tail.is_complete,
        hours=described,
        upstreams=await _read_upstreams(tx, principal, newer, upstreams, hours=min(hours, UPSTREAM_HOURS_MAX)),
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
        if key.principal == (principal or ALL_PRINCIPALS) and key.upstream in upstreams and key.hour in within:
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
