"""A store that records its writes: each unit of work is a commit. It also records reads, which cost a snapshot each."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ringback.domain.ports import Store, Transaction
from tests.support.stores import StoreWrapper

T = TypeVar("T")


class CommitCountingStore(StoreWrapper):
    """Records the qualified names of units of work in their order."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.written: list[str] = []
        self.finished: list[str] = []
        """The writes that have been committed or rolled back."""
        self.read_names: list[str] = []

    def clear(self) -> None:
        self.written.clear()
        self.finished.clear()
        self.read_names.clear()

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        self.written.append(_name_of(work))
        try:
            return await super().write(work)
        finally:
            self.finished.append(_name_of(work))

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        self.read_names.append(_name_of(work))
        return await super().read(work)


def _name_of(work: Any) -> str:
    return getattr(work, "__qualname__", "").partition(".<locals>")[0]
