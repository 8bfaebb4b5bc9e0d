"""A store that records its writes: each unit of work is a commit."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ringback.domain.ports import Store, Transaction
from tests.support.stores import StoreWrapper

T = TypeVar("T")


class CommitCountingStore(StoreWrapper):
    """Records the qualified names of units of work in their order."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.written: list[str] = []

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        self.written.append(getattr(work, "__qualname__", "").partition(".<locals>")[0])
        return await super().write(work)
