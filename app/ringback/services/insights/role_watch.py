"""Logs the roles that work waits for and that no node runs. Each node does: any of them may be the only one with a reader."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.domain.roles import Role
from ringback.services.insights.missing_roles import find_missing_roles
from ringback.waits import wait_first

log = logging.getLogger(__name__)

ROUND_SECONDS: Final = 30.0
REPEAT_SECONDS: Final = 3600.0
"""How often the same roles are logged while they are missing."""


class RoleWatch:
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
            log.warning("roles.missing", extra={"roles": list(missing)})
            self._repeat_at = self._clock.monotonic() + REPEAT_SECONDS
        elif self._logged and not missing:
            log.info("roles.complete")
        self._logged = missing
