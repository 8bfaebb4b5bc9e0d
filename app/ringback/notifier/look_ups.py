"""Look-ups of names for the guard: cached, shared, bounded in time, and in number for each principal.

    look_up(host, principal) ──▶ cached? ──▶ in flight? share it ──▶ permit of this principal ──▶ resolver

A look-up in flight is shared by all callers that want its name. One that still waits for a permit is not shared: the permit
belongs to one principal, and another principal must not wait in its queue.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ringback.domain.principal import Principal
from ringback.notifier.address_cache import AddressCache
from ringback.notifier.addresses import Address
from ringback.notifier.look_up_permits import LookupLimiter
from ringback.notifier.resolver import FAILURE_TTL_SECONDS, LookupFailed, NameNotFound, Resolution, Resolver

RESOLVE_SECONDS: Final = 2.0
"""For a name's addresses, the wait for a permit included. A healthy resolver answers in milliseconds what it has cached, and
within a second or so what it has to ask other name servers for."""
NO_PRINCIPAL: Final = Principal("")
"""For look-ups of the service itself and of the CLI: together they have one principal's share."""

_TIMED_OUT_RESOLUTION: Final = Resolution(ttl_seconds=FAILURE_TTL_SECONDS, failure="no answer from the name servers in time")


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
