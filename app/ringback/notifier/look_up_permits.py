"""Permits for look-ups: so many in all, so many for each principal, and fair turns while there are too few.

A principal at its limit waits for its own look-ups to end, and for those of no other principal. When all permits are out, the
next one that is released goes to the waiting principal that holds the fewest: one principal's hung names, however many, do not
keep another principal waiting for longer than until the next permit is released.
"""

import asyncio
from collections import Counter, deque
from typing import Final

from ringback.domain.principal import Principal

LOOKUPS_MAX: Final = 256
"""In flight at once. With answers in 20 ms these are 12,800 look-ups a second, more than a service of one process needs."""
LOOKUPS_PER_PRINCIPAL_MAX: Final = 16
"""A sixteenth: one principal's hung names, of which each holds a permit for `RESOLVE_SECONDS`, leave all the others free."""


class LookupLimiter:
    def __init__(
        self, *, in_flight_max: int = LOOKUPS_MAX, per_principal_max: int = LOOKUPS_PER_PRINCIPAL_MAX
    ) -> None:
        self._in_flight_max = in_flight_max
        self._per_principal_max = per_principal_max
        self._permits_held: Counter[Principal] = Counter()
        self._waiting: dict[Principal, deque[asyncio.Future[None]]] = {}

    @property
    def in_flight(self) -> int:
        return self._permits_held.total()

    def held_by(self, principal: Principal) -> int:
        return self._permits_held[principal]

    async def acquire_permit(self, principal: Principal) -> None:
        """Return with a permit, which has to be released. In the order of arrival within a principal."""
        granted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(principal, deque()).append(granted)
        self._grant_next()
        try:
            await granted
        except asyncio.CancelledError:
            self._cancel_waiting(principal, granted)
            raise

    def release_permit(self, principal: Principal) -> None:
        self._permits_held[principal] -= 1
        if not self._permits_held[principal]:
            del self._permits_held[principal]
        self._grant_next()

    def _grant_next(self) -> None:
        """Out of all that may have one, the principal that holds the fewest is next."""
        while self._waiting and self.in_flight < self._in_flight_max:
            principal = min(self._waiting, key=self._permits_held.__getitem__)
            if self._permits_held[principal] >= self._per_principal_max:
                return
            granted = self._dequeue(principal)
            if not granted.cancelled():  # its caller has left in this turn of the event loop, and has not run since
                self._permits_held[principal] += 1
                granted.set_result(None)

    def _dequeue(self, principal: Principal) -> asyncio.Future[None]:
        """The one that came first; a principal that goes on waiting goes behind those that hold as many."""
        queue = self._waiting.pop(principal)
        first = queue.popleft()
        if queue:
            self._waiting[principal] = queue
        return first

    def _cancel_waiting(self, principal: Principal, future: asyncio.Future[None]) -> None:
        if future.done() and not future.cancelled():
            self.release_permit(principal)  # it was granted in the same turn of the event loop
            return
        queue = self._waiting.get(principal, deque[asyncio.Future[None]]())
        if future in queue:
            queue.remove(future)
        if not queue:
            self._waiting.pop(principal, None)
