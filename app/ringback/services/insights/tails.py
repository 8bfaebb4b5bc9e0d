"""What the hourly rows do not have yet, counted once for all readers.

    hourly rows of the store ──▶ position ──▶ rows that are counted here ──▶ now

Each count reads only the rows that are new since the last one, and drops those that the janitor has counted since. Transactions
commit in any order, so the rows of the last two counts are read again. A row is known by its position and counts once.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from ringback.domain.clock import Clock
from ringback.domain.insight_rows import (
    Fact,
    FactBatch,
    FactStream,
    HourCounts,
    HourKey,
    PositionOrder,
    count_facts,
    order_of_position,
)
from ringback.domain.insights import CountedLabel, hour_of
from ringback.domain.ports import Store, Transaction

PAGE_ROWS: Final = 1_000
"""Rows that are read without a pause of the event loop: some milliseconds."""
PAGES_MAX: Final = 20
"""Pages of each stream in one count. The next count goes on from there."""
TAIL_FACTS_MAX: Final = 20_000
"""Facts of each stream that are kept, some five megabytes. The janitor counts rows after 70 seconds at most, so this suffices
for 285 calls a second. Of more, the newest are missing until the janitor has counted them."""
TAIL_TTL_SECONDS: Final = 3.0
"""How long a count stays valid: any number of viewers cause one count in three seconds."""


class Tail(NamedTuple):
    positions: Mapping[str, str]
    """Up to where the hourly rows had counted. Added to other hourly rows, the counts would be wrong."""
    counts: HourCounts


class CountedTail:
    """Concurrent readers share one count."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._task: asyncio.Task[Tail] | None = None
        self._counted_at = 0.0
        self._streams = [_StreamTail(stream) for stream in FactStream]

    async def count(self, *, outdated: Tail | None = None) -> Tail:
        """Count, unless a count is running or valid. One that a reader has found `outdated` is not valid."""
        if self._task is None or (self._task.done() and not self._is_valid(self._task, outdated)):
            self._task = asyncio.create_task(self._run(), name="count-tail")
        return await asyncio.shield(self._task)

    def _is_valid(self, task: asyncio.Task[Tail], outdated: Tail | None) -> bool:
        if task.cancelled() or task.exception() is not None or task.result() is outdated:
            return False
        return self._clock.monotonic() - self._counted_at < TAIL_TTL_SECONDS

    async def _run(self) -> Tail:
        counted = await self._store.scan(None, self._read)
        self._counted_at = self._clock.monotonic()
        return counted

    async def _read(self, tx: Transaction) -> Tail:
        """The store may run this again after a failure: rows that are known already are not counted again."""
        positions = await tx.insights.get_positions()
        counts: dict[HourKey, Counter[CountedLabel]] = {}
        for each in self._streams:
            await each.read_new(tx, positions.get(each.stream))
            counts = _add(counts, each.counts)
        return Tail(positions, counts)


class _StreamTail:
    def __init__(self, stream: FactStream) -> None:
        self.stream = stream
        self.counts: dict[HourKey, Counter[CountedLabel]] = {}
        self._forget_all()

    def _forget_all(self) -> None:
        self.counts = {}
        self._facts: dict[PositionOrder, Fact] = {}
        self._alike: dict[Fact, Fact] = {}
        """Facts that count the same are one object."""
        self._counted_to: PositionOrder = ()
        self._read_to: str | None = None
        self._settled_to: str | None = None
        """Where the next count begins: at the end of the count before the last one."""

    async def read_new(self, tx: Transaction, position: str | None) -> None:
        await self._drop_counted(tx, order_of_position(position))
        after = max(position, self._settled_to, key=order_of_position)
        has_more = True
        for _ in range(PAGES_MAX):
            if not has_more or len(self._facts) >= TAIL_FACTS_MAX:
                break
            batch = await tx.insights.list_facts(self.stream, after, until=None, limit=PAGE_ROWS)
            self._add_new(batch)
            after, has_more = batch.position or after, batch.is_full
            await tx.pause()
        self._settled_to, self._read_to = after if has_more else self._read_to, after

    async def _drop_counted(self, tx: Transaction, counted_to: PositionOrder) -> None:
        if counted_to < self._counted_to:
            self._forget_all()  # the database is an earlier one
        if counted_to == self._counted_to:
            return
        dropped = [order for order in self._facts if order <= counted_to]
        for start in range(0, len(dropped), PAGE_ROWS):
            facts = [self._facts.pop(order) for order in dropped[start : start + PAGE_ROWS]]
            self.counts = _subtract(self.counts, count_facts(facts))
            await tx.pause()
        self._alike = {fact: fact for fact in self._facts.values()}
        self._counted_to = counted_to

    def _add_new(self, batch: FactBatch) -> None:
        added: list[Fact] = []
        for position, fact in zip(batch.positions, batch.facts, strict=True):
            order = order_of_position(position)
            if order not in self._facts:
                in_hour = fact._replace(instant=hour_of(fact.instant))
                self._facts[order] = self._alike.setdefault(in_hour, in_hour)
                added.append(in_hour)
        self.counts = _add(self.counts, count_facts(added))


def _add(counts: HourCounts, more: HourCounts) -> dict[HourKey, Counter[CountedLabel]]:
    """A new mapping, because readers in other threads read the earlier one."""
    return {**counts, **{key: counts.get(key, Counter()) + number for key, number in more.items()}}


def _subtract(counts: HourCounts, less: HourCounts) -> dict[HourKey, Counter[CountedLabel]]:
    rest = {**counts, **{key: counts[key] - number for key, number in less.items()}}
    return {key: number for key, number in rest.items() if number}
