"""What the hourly rows do not have yet, counted once for all readers.

    hourly rows of the store ──▶ position ──▶ rows that are counted here ──▶ now

Each count reads only the rows that are new since the last one, and drops those that the janitor has counted since. Transactions
commit in any order, so the rows of the last two counts are read again. A row is known by its position and counts once.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Mapping
from functools import partial
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
FULL_PAGES_MAX: Final = 2
"""Full pages of all streams together in one count: some forty milliseconds. The next count goes on from there."""
TAIL_FACTS_MAX: Final = 20_000
"""Facts of each stream that are kept, some five megabytes. The janitor counts rows after 70 seconds at most, so this suffices
for 285 calls a second. Of more, the newest are missing until the janitor has counted them."""
TAIL_TTL_SECONDS: Final = 3.0
"""How long a count stays valid: any number of viewers cause one count in three seconds."""


class Tail(NamedTuple):
    positions: Mapping[str, str]
    """Up to where the hourly rows had counted. Added to other hourly rows, the counts would be wrong."""
    counts: HourCounts
    is_complete: bool
    """False if there is more to count."""


class CountedTail:
    """Concurrent readers share one count."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._task: asyncio.Task[Tail] | None = None
        self._counted_at = 0.0
        self._streams = [_StreamTail(stream) for stream in FactStream]
        self._is_complete = False

    async def count(self, *, outdated: Tail | None = None) -> Tail:
        """Count, unless a count is running or valid. One that is not complete is not valid: the next reader counts on.

        Of a count that a reader has found `outdated`, only those rows are dropped that the janitor has counted since.
        """
        if self._task is None or (self._task.done() and not self._is_valid(self._task, outdated)):
            pages = FULL_PAGES_MAX if outdated is None else 0
            self._task = asyncio.create_task(self._run(pages), name="count-tail")
        return await asyncio.shield(self._task)

    def _is_valid(self, task: asyncio.Task[Tail], outdated: Tail | None) -> bool:
        if task.cancelled() or task.exception() is not None:
            return False
        if outdated is not None:
            return task.result() is not outdated
        return task.result().is_complete and self._clock.monotonic() - self._counted_at < TAIL_TTL_SECONDS

    async def _run(self, pages: int) -> Tail:
        counted = await self._store.scan(None, partial(self._read, pages=pages))
        if pages:
            self._counted_at = self._clock.monotonic()
        return counted

    async def _read(self, tx: Transaction, *, pages: int) -> Tail:
        """The store may run this again after a failure: rows that are known already are not counted again."""
        positions = await tx.insights.get_positions()
        for each in self._streams:
            await each.drop_counted(tx, positions.get(each.stream))
        if pages:
            self._is_complete = await self._read_new(tx, pages)
        counts: dict[HourKey, Counter[CountedLabel]] = {}
        for each in self._streams:
            counts = _add(counts, each.counts)
        return Tail(positions, counts, self._is_complete)

    async def _read_new(self, tx: Transaction, pages: int) -> bool:
        """Read all streams in turns until so many pages were full. Returns whether these were all rows."""
        reading = [each for each in self._streams if each.begin_count()]
        is_complete = len(reading) == len(self._streams)
        unread = deque(reading)
        while unread and pages:
            stream = unread.popleft()
            if await stream.read_page(tx):
                unread.append(stream)
                pages -= 1
        for each in reading:
            each.end_count(has_more=each in unread)
        return is_complete and not unread


class _StreamTail:
    def __init__(self, stream: FactStream) -> None:
        self.stream = stream
        self.counts: dict[HourKey, Counter[CountedLabel]] = {}
        self._position: str | None = None
        """Up to where the hourly rows had counted."""
        self._forget_all()

    def _forget_all(self) -> None:
        self.counts = {}
        self._facts: dict[PositionOrder, Fact] = {}
        self._alike: dict[Fact, Fact] = {}
        """Facts that count the same are one object."""
        self._counted_to: PositionOrder = ()
        self._after: str | None = None
        """Where the count that is running goes on."""
        self._read_to: str | None = None
        self._settled_to: str | None = None
        """Where the next count begins: at the end of the count before the last one."""

    def begin_count(self) -> bool:
        """False if no more facts are kept."""
        self._after = max(self._position, self._settled_to, key=order_of_position)
        return len(self._facts) < TAIL_FACTS_MAX

    async def read_page(self, tx: Transaction) -> bool:
        """Whether there is more to read."""
        batch = await tx.insights.list_facts(self.stream, self._after, until=None, limit=PAGE_ROWS)
        self._add_new(batch)
        self._after = batch.position or self._after
        await tx.pause()
        return batch.is_full

    def end_count(self, *, has_more: bool) -> None:
        self._settled_to, self._read_to = self._after if has_more else self._read_to, self._after

    async def drop_counted(self, tx: Transaction, position: str | None) -> None:
        """Drop the facts that the hourly rows have up to this position."""
        self._position, counted_to = position, order_of_position(position)
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
