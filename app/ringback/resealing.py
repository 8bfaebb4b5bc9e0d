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

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.sealed import Counted, Renewed, Sealed
from ringback.waits import first_of

log = logging.getLogger(__name__)

STEP: Final = 200
"""Rows in one unit of work: some five milliseconds of the one writer's time."""
COUNTED_STEP: Final = 1_000
"""Rows that are counted at once: some four milliseconds of a reader's time."""
PAUSE_SECONDS: Final = 0.05
"""Between two steps, so that they take a tenth of it."""
AGAIN_SECONDS: Final = 5.0
"""After one that the store could not take: it may be full for hours, and each attempt is a line in the log."""


class Resealer:
    name = "resealer"

    def __init__(self, *, store: Store, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._store = store
        self._sleep = sleep

    async def run(self, stop: asyncio.Event) -> None:
        for what in Sealed:
            await self._renew(what, stop)
        await stop.wait()

    async def _renew(self, what: Sealed, stop: asyncio.Event) -> None:
        renewed = unreadable = 0
        after: str | None = ""
        while after is not None:
            if stop.is_set():
                return
            step = await self._step(what, after)
            if step is not None:
                renewed, unreadable, after = renewed + step.renewed, unreadable + step.unreadable, step.last
            await first_of(stop.wait(), self._sleep(AGAIN_SECONDS if step is None else PAUSE_SECONDS))
        level = logging.WARNING if unreadable else logging.INFO
        log.log(level, "sealed.renewed", extra={"what": str(what), "renewed": renewed, "unreadable": unreadable})

    async def _step(self, what: Sealed, after: str) -> Renewed | None:
        """None when the store could not be written just now."""
        try:
            return await self._store.write(lambda tx: tx.sealed.renew(what, after=after, limit=STEP))
        except StoreUnavailable:
            log.warning("sealed.store_unavailable")
            return None


async def count_sealed(store: Store) -> Mapping[str, int]:
    """How many values each key sealed, by the key's id: counted in steps, so that nobody waits for the whole."""
    counts = Counter[str]()
    for what in Sealed:
        after: str | None = ""
        while after is not None:
            step = await store.scan(None, partial(_count, what=what, after=after))
            counts.update(step.by_key)
            after = step.last
    return counts


async def _count(tx: Transaction, *, what: Sealed, after: str) -> Counted:
    return await tx.sealed.count(what, after=after, limit=COUNTED_STEP)
