"""DNS lookups with a cache, a time limit, and a concurrency limit for each principal.

    resolve_host(host, principal) ──▶ cached? ──▶ in flight? share it ──▶ permit of this principal ──▶ resolver

All callers that need a name share one lookup in flight. A lookup that still waits for its permit is not shared: the permit
belongs to one principal, and another principal must not wait in that queue.
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ringback.domain.client_address import Address
from ringback.domain.principal import Principal
from ringback.notifier.http.resolver import FAILURE_TTL_SECONDS, LookupFailed, NameNotFound, Resolution, Resolver

LOOKUPS_MAX: Final = 256
"""Lookups in flight. With answers in 20 ms, this allows 12,800 lookups a second, more than one process needs."""
LOOKUPS_PER_PRINCIPAL_MAX: Final = 16
"""A sixteenth of `LOOKUPS_MAX`: each hanging name of a principal holds a permit for `RESOLVE_SECONDS`, and the other permits
stay free."""


class LookupLimiter:
    """Permits for lookups: a total limit, a limit for each principal, and fair turns.

    A principal at its limit waits for its own lookups only. When all permits are out, the next released permit goes to the
    waiting principal that holds the fewest. So one principal's hanging names, however many, delay another principal until
    the next release at most.
    """

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
        """Wait for a permit, which the caller must release. Callers of one principal get theirs in order of arrival."""
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
        """Grant permits while any are free; the principal that holds the fewest is next."""
        while self._waiting and self.in_flight < self._in_flight_max:
            principal = min(self._waiting, key=self._permits_held.__getitem__)
            if self._permits_held[principal] >= self._per_principal_max:
                return
            granted = self._dequeue(principal)
            if not granted.cancelled():  # cancelled in this turn of the event loop; its task has not run since
                self._permits_held[principal] += 1
                granted.set_result(None)

    def _dequeue(self, principal: Principal) -> asyncio.Future[None]:
        """The principal's first waiter; a principal with more waiters goes behind those that hold as many permits."""
        queue = self._waiting.pop(principal)
        first = queue.popleft()
        if queue:
            self._waiting[principal] = queue
        return first

    def _cancel_waiting(self, principal: Principal, future: asyncio.Future[None]) -> None:
        if future.done() and not future.cancelled():
            self.release_permit(principal)  # granted in the same turn of the event loop
            return
        queue = self._waiting.get(principal, deque[asyncio.Future[None]]())
        if future in queue:
            queue.remove(future)
        if not queue:
            self._waiting.pop(principal, None)


NAMES_MAX: Final = 4096
"""Names in the cache. A name has at most some 75 addresses (`ARES_FLAG_IGNTC`), mostly one or two: 20 MB at worst."""


class AddressCache:
    """Caches each resolution for its TTL; a full cache drops the name that was used longest ago.

    It holds addresses, never the guard's decision: the guard checks them again for each connection.
    """

    def __init__(self, *, monotonic: Callable[[], float], names_max: int = NAMES_MAX) -> None:
        self._monotonic = monotonic
        self._names_max = names_max
        self._cached: OrderedDict[str, tuple[Resolution, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._cached)

    def get(self, host: str) -> Resolution | None:
        """The resolution of a name, unless its TTL is over."""
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
"""For one lookup, the wait for a permit included. A healthy name server answers within milliseconds from its cache, and
within about a second if it queries other name servers."""
NO_PRINCIPAL: Final = Principal("")
"""The lookups of the service itself and of the CLI share the limit of one principal."""

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
        self._cache = AddressCache(monotonic=monotonic) if cache is None else cache  # an empty one is false
        self._in_flight: dict[str, asyncio.Task[Resolution]] = {}
        self._is_closed = False

    async def resolve_host(self, host: str, principal: Principal, *, until: float | None = None) -> Sequence[Address]:
        """The addresses of a name, at the loop time `until` at the latest; raises NameNotFound or LookupFailed."""
        resolution = self._cache.get(host) or await self._resolve_within_timeout(host, principal, until)
        if resolution.failure is not None:
            raise LookupFailed(resolution.failure)
        if not resolution.addresses:
            raise NameNotFound("the name has no address")
        return resolution.addresses

    async def aclose(self) -> None:
        """Cancel the lookups in flight; their callers and all later callers get LookupFailed."""
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
    """The result of a shared lookup; a cancelled caller does not cancel it."""
    await asyncio.wait([task])
    return Resolution(failure="the service is stopping") if task.cancelled() else task.result()
