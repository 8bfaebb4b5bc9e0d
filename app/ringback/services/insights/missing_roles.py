"""Roles that work waits for and that no node runs.

    a lease of a running call has expired   ──▶  janitors recover its call
    a call is queued                        ──▶  runners run it
    a delivery is due                       ──▶  dispatchers send it

A process that shares its database with no other has every role.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from ringback.domain.clock import Clock, seconds
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.roles import DUTIES, Role
from ringback.waits import wait_first

log = logging.getLogger(__name__)

ROUND_SECONDS: Final = 30.0
REPEAT_SECONDS: Final = 3600.0
"""How often the same roles are logged while they are missing."""
WORK_WAITS_SECONDS: Final = 60.0
"""Longer than a node that has the role needs: it recovers a lease 15 s after its end, and a duty changes nodes in 40 s."""


async def find_missing_roles(store: Store) -> Sequence[Role]:
    """The roles without a node that have work older than `WORK_WAITS_SECONDS`."""
    return () if store.is_exclusive else await store.read(_read_missing_roles)


async def has_node(tx: Transaction, role: Role) -> bool:
    """Whether a node with this role, which has one of `DUTIES`, has run within the last 30 s."""
    return await tx.leaders.is_held(DUTIES[role], now=tx.now())


async def _read_missing_roles(tx: Transaction) -> Sequence[Role]:
    waiting_since = {
        Role.RUNNER: await tx.usage.oldest_queued_since(),
        Role.JANITOR: await tx.usage.first_lease_end(),
        Role.DISPATCHER: await tx.delivery_queue.next_due_at(),
    }
    longest = tx.confirmed_now() - seconds(WORK_WAITS_SECONDS)
    overdue = [role for role, since in waiting_since.items() if since is not None and since < longest]
    return [role for role in overdue if not await has_node(tx, role)]


class RoleWatch:
    """Logs the missing roles. Each node does: any of them may be the only one with a reader."""

    name = "role-watch"

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._logged: Sequence[Role] = ()
        self._repeat_at = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        if self._store.is_exclusive:
            await stop.wait()  # one process has all roles
        while not stop.is_set():
            await wait_first(stop.wait(), self._clock.sleep(ROUND_SECONDS))
            await self.run_once()

    async def run_once(self) -> None:
        try:
            missing = await find_missing_roles(self._store)
        except StoreUnavailable:
            return
        if missing and (missing != self._logged or self._clock.monotonic() >= self._repeat_at):
            log.warning("roles.missing", extra={"roles": [str(role) for role in missing]})
            self._repeat_at = self._clock.monotonic() + REPEAT_SECONDS
        elif self._logged and not missing:
            log.info("roles.complete")
        self._logged = missing
