"""What a store is asked to write: each unit of work is a commit."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ringback.domain.ports import Store, Transaction
from ringback.domain.signals import Signals

T = TypeVar("T")


class CountingStore:
    """The store, and the names of the functions that were units of work to write, in their order."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.written: list[str] = []

    @property
    def signals(self) -> Signals:
        return self._store.signals

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._store.read(work)

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        self.written.append(getattr(work, "__qualname__", "").partition(".<locals>")[0])
        return await self._store.write(work)
