"""The worker that brings webhooks to the head of their logs, one bounded step in each transaction."""

import asyncio
import logging
from typing import Final

from ringback.domain.catch_up import CATCH_UP_TOPIC
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.notifier.catch_up import CatchUps
from ringback.waits import wait_first

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 5.0
"""How long a missed ring, or a store that could not be written, delays a catch-up."""


class CatchUpWorker:
    """Makes one step after the other, in turns between principals; of one principal the oldest catch-up goes first.

    After each step it pauses for as long as the step took, so that a long past takes at most half of what the store can do.
    """

    name = "catch-up"

    def __init__(self, *, store: Store, catch_ups: CatchUps, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._catch_ups = catch_ups
        self._last_principal = ""
        """The principal whose turn it was."""

    async def run(self, stop: asyncio.Event) -> None:
        with self._store.signals.listen(CATCH_UP_TOPIC) as waiter:
            while not stop.is_set():
                began = self._clock.monotonic()
                try:
                    did_step = await self.run_once()
                except StoreUnavailable:
                    log.warning("catch_up.store_unavailable")
                    did_step = False
                if did_step:
                    await wait_first(stop.wait(), self._clock.sleep(self._clock.monotonic() - began))
                else:
                    await wait_first(waiter.wait(POLL_SECONDS), stop.wait())

    async def run_once(self) -> bool:
        """Make one step of the next principal's; False when no webhook catches up."""
        catch_up = await self._store.read(lambda tx: tx.catch_ups.find_next(after=self._last_principal))
        if catch_up is None:
            return False
        self._last_principal = catch_up.principal
        await self._store.write(lambda tx: self._catch_ups.continue_catch_up(tx, catch_up))
        return True
