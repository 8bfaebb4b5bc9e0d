"""A store whose connection is lost during a commit: the unit is committed, and its caller does not learn it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from tests.support.limits import WAIT_SECONDS
from tests.support.stores import StoreWrapper


class LosingStore(StoreWrapper):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._losing: str | None = None
        self._lost = asyncio.Event()

    def lose_next_commit(self, *, of: str) -> None:
        """The next unit whose work's qualified name contains `of`."""
        self._losing = of

    async def wait_until_lost(self) -> None:
        """Wait until the unit is committed and its rollback actions have run. Its rows are visible before these actions."""
        await asyncio.wait_for(self._lost.wait(), WAIT_SECONDS)

    async def write(self, work: Callable[[Transaction], Awaitable[Any]]) -> Any:
        if self._losing is None or self._losing not in getattr(work, "__qualname__", ""):
            return await super().write(work)
        self._losing = None
        undo: list[Callable[[], None]] = []

        async def run_without_end_actions(tx: Transaction) -> None:
            losing: Any = tx
            losing.on_commit, losing.on_rollback = _ignore, undo.append
            await work(tx)

        await super().write(run_without_end_actions)
        for action in undo:
            action()
        self._lost.set()
        raise StoreUnavailable("The connection was lost during the commit.")


def _ignore(_action: Callable[[], None]) -> None: ...
