"""Seals values of older keys again with the newest key, so that the operator can drop the older keys from the key ring.

The service does this itself, because only it knows for certain which ring it runs with. After each start with more than one key
it goes once through all sealed columns, in small steps between other writes. After a kill it starts over and finds most values
done. A value that no key of the ring opens stays unchanged: the operator may put its key back. Arguments and results of calls
keep their key until they expire: they can have megabytes.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from ringback.domain.encryption import DURABLE_COLUMNS, RESEALED_COLUMNS, ResealStep, SealedColumn, SealedCountStep
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.waits import wait_first

log = logging.getLogger(__name__)

RESEAL_BATCH_SIZE: Final = 200
"""Rows in one transaction: about five milliseconds of the one writer's time."""
COUNT_BATCH_SIZE: Final = 1_000
"""Rows in one count: about four milliseconds of a reader's time."""
STEP_PAUSE_SECONDS: Final = 0.05
"""The pause between two steps, so that they take a tenth of the writer's time."""
RETRY_SECONDS: Final = 5.0
"""The pause after a step that the store refused: a disk may be full for hours, and each attempt is a log line."""


class Resealer:
    name = "resealer"

    def __init__(self, *, store: Store, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._store = store
        self._sleep = sleep

    async def run(self, stop: asyncio.Event) -> None:
        for column in RESEALED_COLUMNS:
            await self._reseal_column(column, stop)
        await stop.wait()

    async def _reseal_column(self, column: SealedColumn, stop: asyncio.Event) -> None:
        resealed = unreadable = 0
        after: str | None = ""
        while after is not None:
            if stop.is_set():
                return
            step = await self._run_step(column, after)
            if step is not None:
                resealed, unreadable, after = resealed + step.resealed, unreadable + step.unreadable, step.last_id
            await wait_first(stop.wait(), self._sleep(RETRY_SECONDS if step is None else STEP_PAUSE_SECONDS))
        level = logging.WARNING if unreadable else logging.INFO
        log.log(level, "sealed.renewed", extra={"what": str(column), "renewed": resealed, "unreadable": unreadable})

    async def _run_step(self, column: SealedColumn, after: str) -> ResealStep | None:
        """Seal the next values of the column with the newest key; None while the store is unavailable."""
        try:
            return await self._store.write(
                lambda tx: tx.sealed_values.reseal(column, after=after, limit=RESEAL_BATCH_SIZE)
            )
        except StoreUnavailable:
            log.debug("sealed.store_unavailable")
            return None


async def count_sealed_by_key(store: Store) -> Mapping[str, int]:
    """The number of durable values that each key sealed, by key id.

    Counted in steps, so that no writer waits for the whole count.
    """
    counts = Counter[str]()
    for column in DURABLE_COLUMNS:
        after: str | None = ""
        while after is not None:
            step = await store.scan(None, partial(_count_step, column=column, after=after))
            counts.update(step.counts_by_key)
            after = step.last_id
    return counts


async def _count_step(tx: Transaction, *, column: SealedColumn, after: str) -> SealedCountStep:
    return await tx.sealed_values.count_by_key(column, after=after, limit=COUNT_BATCH_SIZE)
