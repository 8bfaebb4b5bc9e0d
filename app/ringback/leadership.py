"""One node at a time has a duty that must not be done twice, by a lease in the store.

    acquired ──▶ the duty runs; the lease is extended every `EXTEND_SECONDS`
    not extended in time, or lost ──▶ the duty stops before the lease runs out
    stopped  ──▶ the lease is released, and another node that waits for it is notified

A store of one process needs no lease. The store's clock decides when a lease runs out. The holder trusts it for
`TRUST_SECONDS` of its own elapsed time, counted from before it asked.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ringback.asyncio_tasks import end_tasks
from ringback.domain.clock import Clock, seconds
from ringback.domain.clock_confirmation import latest_of_right_clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.waits import wait_first

log = logging.getLogger(__name__)

LEASE_SECONDS: Final = 30.0
"""How long a duty may rest after its node was killed."""
EXTEND_SECONDS: Final = 10.0
"""A third of the lease, so that two failed attempts lose nothing."""
TRUST_SECONDS: Final = 25.0
"""The holder stops 5 s before the lease runs out: for clocks that drift, and for stopping the work."""


class Leadership:
    def __init__(self, *, store: Store, clock: Clock, owner: str, duty: str) -> None:
        self._store = store
        self._clock = clock
        self._owner = owner
        self._duty = duty
        self._trusted_until = 0.0

    async def run_as_leader(self, work: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
        """Run `work` whenever this node has the duty, until `stop` is set. `work` runs until it is cancelled."""
        if self._store.is_exclusive:
            await self._run_until(work, stop.wait())
            return
        with self._store.signals.listen(self._topic) as waiter:
            try:
                while not stop.is_set():
                    if await self._acquire():
                        await self._run_until(work, wait_first(stop.wait(), self._hold_lease()))
                    else:
                        await wait_first(stop.wait(), waiter.wait(EXTEND_SECONDS))
            finally:
                await self._release()

    @property
    def _topic(self) -> str:
        return f"duty:{self._duty}"

    async def _run_until(self, work: Callable[[], Awaitable[None]], end: Awaitable[object]) -> None:
        working, ending = asyncio.ensure_future(work()), asyncio.ensure_future(end)
        try:
            await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            await end_tasks((working, ending))

    async def _hold_lease(self) -> None:
        """Return when the lease is lost, or cannot be trusted any more."""
        while (remaining := self._trusted_until - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(EXTEND_SECONDS, remaining))
            await wait_first(
                self._acquire(), self._clock.sleep(max(0.0, self._trusted_until - self._clock.monotonic()))
            )

    async def _acquire(self) -> bool:
        """Lease the duty, or extend the lease. If the store is unavailable, an earlier lease is trusted as long as before."""
        asked_at = self._clock.monotonic()
        try:
            is_leader = await self._store.write_heartbeat(self._write_lease)
        except StoreUnavailable:
            return self._trusted_until > asked_at
        self._trusted_until = asked_at + TRUST_SECONDS if is_leader else 0.0
        return is_leader

    async def _write_lease(self, tx: Transaction) -> bool:
        """A lease of another node runs out by confirmed time: the clock may only be far ahead.

        One of a node that died while it was would run out in weeks, so it is shortened. A node that lives extends it in time.
        """
        until = tx.now() + seconds(LEASE_SECONDS)
        if await tx.leaders.acquire(self._duty, owner=self._owner, until=until, now=tx.confirmed_now()):
            return True
        await tx.leaders.shorten_lease(self._duty, ends_after=latest_of_right_clock(tx.now()), until=until)
        return False

    async def _release(self) -> None:
        async def release(tx: Transaction) -> None:
            await tx.leaders.release(self._duty, owner=self._owner)
            tx.notify(self._topic)

        may_hold_lease, self._trusted_until = self._trusted_until > 0, 0.0
        if may_hold_lease:
            try:
                await self._store.write(release)
            except StoreUnavailable:
                log.warning("duty.not_released", extra={"duty": self._duty})  # it runs out


class DutyHolder:
    """A worker that has a duty without doing anything, so that other nodes see that a node with its role runs."""

    def __init__(self, name: str, leadership: Leadership) -> None:
        self.name = name
        self._leadership = leadership

    async def run(self, stop: asyncio.Event) -> None:
        await self._leadership.run_as_leader(_wait_forever, stop)


async def _wait_forever() -> None:
    await asyncio.Event().wait()
