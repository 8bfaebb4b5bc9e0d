"""A store whose commits are timed, for the metric `ringback_store_write_seconds`."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ringback.domain.clock import Clock
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import Signals
from ringback.measurements import Histogram

T = TypeVar("T")


class MeasuredStore:
    """Implements `domain.ports.Store` around another one."""

    def __init__(self, store: Store, *, clock: Clock, write_seconds: Histogram) -> None:
        self._store = store
        self._clock = clock
        self._write_seconds = write_seconds

    @property
    def signals(self) -> Signals:
        return self._store.signals

    @property
    def is_exclusive(self) -> bool:
        return self._store.is_exclusive

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._store.read(work)

    async def scan(self, principal: Principal | None, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._store.scan(principal, work)

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._measure(self._store.write(work))

    async def write_for(self, principal: Principal, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._measure(self._store.write_for(principal, work))

    async def write_heartbeat(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._measure(self._store.write_heartbeat(work))

    async def _measure(self, writing: Awaitable[T]) -> T:
        """The value of the unit. A unit that raises is not measured, because nothing was committed for it."""
        started = self._clock.monotonic()
        value = await writing
        self._write_seconds.observe(self._clock.monotonic() - started)
        return value
