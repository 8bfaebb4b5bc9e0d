"""Look-ups of names for the guard: cached, shared, bounded in time, and in number for each principal.

    look_up(host, principal) ──▶ cached? ──▶ in flight? share it ──▶ permit of this principal ──▶ resolver

A look-up in flight is shared by all callers that want its name. One that still waits for a permit is not shared: the permit
belongs to one principal, and another principal must not wait in its queue.
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ringback.domain.principal import Principal
from ringback.notifier.http.addresses import Address
from ringback.notifier.http.resolver import FAILURE_TTL_SECONDS, LookupFailed, NameNotFound, Resolution, Resolver

# Permits for look-ups: so many in all, so many for each principal, and fair turns while there are too few.
#
# A principal at its limit waits for its own look-ups to end, and for those of no other principal. When all permits are out, the
# next one that is released goes to the waiting principal that holds the fewest: one principal's hung names, however many, do not
# keep another principal waiting for longer than until the next permit is released.

LOOKUPS_MAX: Final = 256
"""In flight at once. With answers in 20 ms these are 12,800 look-ups a second, more than a service of one process needs."""
LOOKUPS_PER_PRINCIPAL_MAX: Final = 16
"""A sixteenth: one principal's hung names, of which each holds a permit for `RESOLVE_SECONDS`, leave all the others free."""


class LookupLimiter:
    def __init__(self, *, in_flight_max: int = LOOKUPS_MAX, per_principal_max: int = LOOKUPS_PER_PRINCIPAL_MAX) -> None:
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


# Resolutions that may be served again: each for its seconds, and a bounded number of them.
#
# Addresses are kept here and never a verdict on them: the guard judges them again for each connection.

NAMES_MAX: Final = 4096
"""Names. At most some 75 addresses each (`ARES_FLAG_IGNTC`), mostly one or two: 20 MB at the worst."""


class AddressCache:
    """The name that was used longest ago makes room."""

    def __init__(self, *, monotonic: Callable[[], float], names_max: int = NAMES_MAX) -> None:
        self._monotonic = monotonic
        self._names_max = names_max
        self._cached: OrderedDict[str, tuple[Resolution, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._cached)

    def get(self, host: str) -> Resolution | None:
        """The resolution of a name as long as its seconds last."""
        cached = self._cached.get(host)
        if cached is None:
            return None
        resolution, until = cached
        if self._monotonic() >= until:
            del self._cached[host]
            return None
        self._cached.move_to_end(host)
        return resolution

    def put(self, host: str, resolution: Resolution) -> None:
        self._cached.pop(host, None)
        if resolution.ttl_seconds <= 0:
            return
        self._cached[host] = (resolution, self._monotonic() + resolution.ttl_seconds)
        if len(self._cached) > self._names_max:
            self._cached.popitem(last=False)


RESOLVE_SECONDS: Final = 2.0
"""For a name's addresses, the wait for a permit included. A healthy resolver answers in milliseconds what it has cached, and
within a second or so what it has to ask other name servers for."""
NO_PRINCIPAL: Final = Principal("")
"""For look-ups of the service itself and of the CLI: together they have one principal's share."""

_TIMED_OUT_RESOLUTION: Final = Resolution(
    ttl_seconds=FAILURE_TTL_SECONDS, failure="no answer from the name servers in time"
)


class CachingResolver:
    def __init__(
        self,
        resolver: Resolver,
        *,
        limiter: LookupLimiter | None = None,
        cache: AddressCache | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._resolver = resolver
        self._limiter = limiter or LookupLimiter()
        self._cache = cache or AddressCache(monotonic=monotonic)
        self._in_flight: dict[str, asyncio.Task[Resolution]] = {}
        self._is_closed = False

    async def resolve_host(self, host: str, principal: Principal, *, until: float | None = None) -> Sequence[Address]:
        """The addresses of a name, at the latest at the loop time `until`; raises NameNotFound or LookUpFailed."""
        resolution = self._cache.get(host) or await self._resolve_within_timeout(host, principal, until)
        if resolution.failure is not None:
            raise LookupFailed(resolution.failure)
        if not resolution.addresses:
            raise NameNotFound("the name has no address")
        return resolution.addresses

    async def aclose(self) -> None:
        """Cancel the look-ups in flight; their callers, and all later ones, get LookUpFailed."""
        self._is_closed = True
        tasks = list(self._in_flight.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._resolver.aclose()

    async def _resolve_within_timeout(self, host: str, principal: Principal, until: float | None) -> Resolution:
        latest = asyncio.get_running_loop().time() + RESOLVE_SECONDS
        try:
            async with asyncio.timeout_at(latest if until is None else min(until, latest)):
                return await self._resolve_uncached(host, principal)
        except TimeoutError:
            return _TIMED_OUT_RESOLUTION

    async def _resolve_uncached(self, host: str, principal: Principal) -> Resolution:
        shared = self._in_flight.get(host)
        if shared is not None:
            return await _shared_result(shared)
        await self._limiter.acquire_permit(principal)
        cached, shared = self._cache.get(host), self._in_flight.get(host)
        if cached is None and shared is None and not self._is_closed:
            return await _shared_result(self._start_lookup(host, principal))
        self._limiter.release_permit(principal)
        if cached is not None:
            return cached
        return Resolution(failure="the service is stopping") if shared is None else await _shared_result(shared)

    def _start_lookup(self, host: str, principal: Principal) -> asyncio.Task[Resolution]:
        task = self._in_flight[host] = asyncio.create_task(self._query_resolver(host))
        task.add_done_callback(partial(self._finish_lookup, host, principal))
        return task

    def _finish_lookup(self, host: str, principal: Principal, task: asyncio.Task[Resolution]) -> None:
        del self._in_flight[host]
        self._limiter.release_permit(principal)
        if not task.cancelled() and task.exception() is None:
            self._cache.put(host, task.result())

    async def _query_resolver(self, host: str) -> Resolution:
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                return await self._resolver(host)
        except TimeoutError:
            return _TIMED_OUT_RESOLUTION
        except (OSError, UnicodeError) as error:
            return Resolution(ttl_seconds=FAILURE_TTL_SECONDS, failure=str(error) or type(error).__name__)


async def _shared_result(task: asyncio.Task[Resolution]) -> Resolution:
    """What everybody gets who shares a look-up; one of them that leaves does not end it."""
    await asyncio.wait([task])
    return Resolution(failure="the service is stopping") if task.cancelled() else task.result()
