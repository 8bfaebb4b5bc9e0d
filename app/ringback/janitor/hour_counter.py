"""Counts starts, ends and attempts into hourly rows, for charts.

    stream ──▶ the next rows after its position, up to a minute ago ──▶ one transaction: their counts, and the new position

A row counts once, because its counts and the position are committed together, and only if the position is still the one from
which the rows were read. So a kill, a restart and a second node change nothing, and a restored backup goes on from its own
positions. The path of a call has no statement more than without it.

Rows younger than `SETTLE_SECONDS` are left for later, because transactions commit in any order: a row that is committed behind
the position would never be counted. Readers count these rows themselves (`services.insights.tails`).

Calls and attempts are counted in the order of their ids, which have the time of the node that made them. On PostgreSQL the
clocks of all nodes follow the database's, and on SQLite all processes have one machine's clock. After a step of the database's
clock, as at a failover, nodes approach it by a second a minute. So these rows have to settle by the clock of the counting node,
too. The limit: if a node started before such a step and the counting node after it, ids of the former may be more than
`SETTLE_SECONDS` behind both clocks. These calls and attempts are missing in the hourly rows for good.
"""

import asyncio
import logging
from collections import Counter
from datetime import datetime
from typing import Final, NamedTuple

from ringback.domain.clock import CONTINUED_AHEAD_SECONDS_MAX, Clock, seconds
from ringback.domain.delivery import DeliveryState
from ringback.domain.errors import StoreUnavailable
from ringback.domain.insight_rows import (
    ALL_UPSTREAMS,
    FactStream,
    HourCounts,
    HourKey,
    count_facts,
    order_of_position,
    position_at,
)
from ringback.domain.insights import PENDING_MAX, QUEUED_MAX, hour_of
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import ALL_PRINCIPALS, Principal
from ringback.domain.suspension import FREEZE_SECONDS
from ringback.janitor.config import BatchRows
from ringback.leadership import Leadership

log = logging.getLogger(__name__)

BATCH_SIZE: Final = 500
"""Rows in one step: some milliseconds of a reader's time, and about one of the writer's. After a step that took long until the
store refused it, the next one has half as many: otherwise it would be the same."""
STEP_PAUSE_SECONDS: Final = 0.05
"""The pause between two steps while there is more to count. Ten thousand rows a second are counted."""
ROUND_SECONDS: Final = 10.0
"""The pause when everything is counted."""
SETTLE_SECONDS: Final = 60.0
"""Longer than a transaction takes from the time of its rows to its commit: statements end after some seconds, and so do waits
for locks. After an outage of the store, rows of the outage are committed late, so the counter pauses for this time."""
STREAMS_BY_ID: Final = frozenset({FactStream.STARTS, FactStream.ATTEMPTS})
"""Ordered by the time of nodes. The others are ordered by the store's time."""
SAMPLE_SECONDS: Final = 30.0
"""Between two samples of the queues."""


class _CountedHours(NamedTuple):
    counts: HourCounts
    before: str | None
    """The position after which the rows were read."""
    after: str | None
    """None if there were none."""
    read_at: datetime
    is_full: bool


class HourCounter:
    name = "hour-counter"

    def __init__(self, *, store: Store, clock: Clock, leadership: Leadership) -> None:
        self._store = store
        self._clock = clock
        self._leadership = leadership
        self._batch = BatchRows(BATCH_SIZE)
        self._next_sample_at = 0.0
        self._longest = Counter[tuple[datetime, str]]()
        """What was written as the longest queues of this hour, so that only longer ones are written."""

    async def run(self, stop: asyncio.Event) -> None:
        await self._leadership.run_as_leader(self._count_forever, stop)

    async def _count_forever(self) -> None:
        """Runs until it is cancelled."""
        while True:
            try:
                pause_seconds = STEP_PAUSE_SECONDS if await self.run_once() else ROUND_SECONDS
            except StoreUnavailable:
                log.debug("hours.store_unavailable")
                pause_seconds = SETTLE_SECONDS
            await self._clock.sleep(pause_seconds)

    async def run_once(self) -> bool:
        """Count one batch of each stream; returns whether any has more."""
        has_more = False
        for stream in FactStream:
            has_more |= await self._count_batch(stream)
        if self._clock.monotonic() >= self._next_sample_at:
            self._next_sample_at = self._clock.monotonic() + SAMPLE_SECONDS
            await self._sample_queues()
        return has_more

    async def _count_batch(self, stream: FactStream) -> bool:
        self._batch.begin(stream)
        began_at = self._clock.monotonic()
        try:
            is_full = await self._count_next(stream, limit=self._batch.rows)
        except StoreUnavailable:
            if self._clock.monotonic() - began_at > FREEZE_SECONDS:
                self._batch.reduce(stream)
            raise
        self._batch.raise_again(stream)
        return is_full

    async def _count_next(self, stream: FactStream, *, limit: int) -> bool:
        own_now = self._clock.now()
        batch = await self._store.scan(None, lambda tx: _read_batch(tx, stream, own_now=own_now, limit=limit))
        if batch.after is not None:
            await self._store.write(lambda tx: _write_batch(tx, stream, batch))
        return batch.is_full

    async def _sample_queues(self) -> None:
        now, lengths = await self._store.scan(None, _read_queues)
        hour = hour_of(now)
        longer = Counter({name: length for name, length in lengths.items() if length > self._longest[hour, name]})
        if not longer:
            return  # an idle service writes nothing

        async def write(tx: Transaction) -> None:
            await tx.insights.get_positions(lock=True)
            await tx.insights.add_counts({HourKey(ALL_PRINCIPALS, ALL_UPSTREAMS, hour): longer})

        await self._store.write(write)
        self._longest = Counter({each: length for each, length in self._longest.items() if each[0] == hour})
        self._longest.update({(hour, name): length - self._longest[hour, name] for name, length in longer.items()})


async def _read_batch(tx: Transaction, stream: FactStream, *, own_now: datetime, limit: int) -> _CountedHours:
    before = (await tx.insights.get_positions()).get(stream)
    now = min(tx.now(), own_now) if stream in STREAMS_BY_ID else tx.now()
    restart = _find_restart(stream, before, now)
    until = now - seconds(SETTLE_SECONDS)
    found = await tx.insights.list_facts(stream, restart or before, until=until, limit=limit)
    return _CountedHours(count_facts(found.facts), before, found.position or restart, tx.now(), found.is_full)


def _find_restart(stream: FactStream, position: str | None, now: datetime) -> str | None:
    """Where to go on from a position so far ahead that the clock must have been wrong when its rows were counted.

    Otherwise nothing would be counted until the present reaches it. The rows ahead count again when the present reaches them.
    """
    limit = position_at(stream, now + seconds(CONTINUED_AHEAD_SECONDS_MAX))
    if order_of_position(position) <= order_of_position(limit):
        return None
    log.warning("hours.position_ahead", extra={"stream": str(stream)})
    return position_at(stream, now - seconds(2 * SETTLE_SECONDS))


async def _write_batch(tx: Transaction, stream: FactStream, batch: _CountedHours) -> None:
    """Write nothing if another node has counted these rows."""
    positions = await tx.insights.get_positions(lock=True)
    if batch.after is None or positions.get(stream) != batch.before:
        return
    principals = {Principal(key.principal) for key in batch.counts}
    erased = await tx.insights.list_erased(principals, since=batch.read_at) if principals else ()
    await tx.insights.add_counts({key: counts for key, counts in batch.counts.items() if key.principal not in erased})
    await tx.insights.save_positions({**positions, str(stream): batch.after})


async def _read_queues(tx: Transaction) -> tuple[datetime, dict[str, int]]:
    work = await tx.open_work.count_open(None)
    pending = work.open_deliveries.get(DeliveryState.PENDING, 0)
    return tx.now(), {QUEUED_MAX: work.queued_calls, PENDING_MAX: pending}
