"""Seals anew what older keys sealed, so that they can be dropped from the key ring one day.

The service does it itself: it alone knows for certain which ring it runs with, and what it seals it can read. It goes once
through everything after each start with more than one key, in small steps between the work of others; whoever is killed
begins again, and finds that most is done. What no key of the ring opens stays as it is: its key may be put back.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from ringback.domain.encryption import ResealStep, SealedColumn, SealedCountStep
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.waits import wait_first

log = logging.getLogger(__name__)

RESEAL_BATCH_SIZE: Final = 200
"""Rows in one unit of work: some five milliseconds of the one writer's time."""
COUNT_BATCH_SIZE: Final = 1_000
"""Rows that are counted at once: some four milliseconds of a reader's time."""
STEP_PAUSE_SECONDS: Final = 0.05
"""Between two steps, so that they take a tenth of it."""
RETRY_SECONDS: Final = 5.0
"""After one that the store could not take: it may be full for hours, and each attempt is a line in the log."""


class Resealer:
    name = "resealer"

    def __init__(self, *, store: Store, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._store = store
        self._sleep = sleep

    async def run(self, stop: asyncio.Event) -> None:
        for what in SealedColumn:
            await self._reseal_column(what, stop)
        await stop.wait()

    async def _reseal_column(self, column: SealedColumn, stop: asyncio.Event) -> None:
        renewed = unreadable = 0
        after: str | None = ""
        while after is not None:
            if stop.is_set():
                return
            step = await self._run_step(column, after)
            if step is not None:
                renewed, unreadable, after = renewed + step.resealed, unreadable + step.unreadable, step.last_id
            await wait_first(stop.wait(), self._sleep(RETRY_SECONDS if step is None else STEP_PAUSE_SECONDS))
        level = logging.WARNING if unreadable else logging.INFO
        log.log(level, "sealed.renewed", extra={"what": str(column), "renewed": renewed, "unreadable": unreadable})

    async def _run_step(self, column: SealedColumn, after: str) -> ResealStep | None:
        """None when the store could not be written just now."""
        try:
            return await self._store.write(
                lambda tx: tx.sealed_values.reseal(column, after=after, limit=RESEAL_BATCH_SIZE)
            )
        except StoreUnavailable:
            log.warning("sealed.store_unavailable")
            return None


async def count_sealed_by_key(store: Store) -> Mapping[str, int]:
    """How many values each key sealed, by the key's id: counted in steps, so that nobody waits for the whole."""
    counts = Counter[str]()
    for what in SealedColumn:
        after: str | None = ""
        while after is not None:
            step = await store.scan(None, partial(_count_step, column=what, after=after))
            counts.update(step.counts_by_key)
            after = step.last_id
    return counts


async def _count_step(tx: Transaction, *, column: SealedColumn, after: str) -> SealedCountStep:
    return await tx.sealed_values.count_by_key(column, after=after, limit=COUNT_BATCH_SIZE)
