"""The base of stores around another store: it passes everything on, and a subclass changes units of work or their writes."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import Signals

T = TypeVar("T")


class StoreWrapper:
    """Implements `domain.ports.Store` around another one."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def signals(self) -> Signals:
        return self._store.signals

    @property
    def is_exclusive(self) -> bool:
        return self._store.is_exclusive

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._store.read(self._wrap_work(work))

    async def scan(self, principal: Principal | None, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._store.scan(principal, self._wrap_work(work))

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._run_write(self._store.write, self._wrap_work(work))

    async def write_for(self, principal: Principal, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._run_write(partial(self._store.write_for, principal), self._wrap_work(work))

    async def write_heartbeat(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._run_write(self._store.write_heartbeat, self._wrap_work(work))

    def _wrap_work(self, work: Callable[[Transaction], Awaitable[T]]) -> Callable[[Transaction], Awaitable[T]]:
        """The unit of work that the wrapped store runs."""
        return work

    async def _run_write(
        self,
        write: Callable[[Callable[[Transaction], Awaitable[T]]], Awaitable[T]],
        work: Callable[[Transaction], Awaitable[T]],
    ) -> T:
        """Run a unit by one of the three writing methods of the wrapped store."""
        return await write(work)
