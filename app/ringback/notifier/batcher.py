"""Writing together what comes one by one: one unit of work for all that came since the last one began.

    add ──▶ waiting ──▶ a unit is asked for; when its turn comes, it takes all that waits by then, up to `AT_ONCE`
                                 ╰─▶ written(items, result), or refused(items, error)

A group commit alone saves commits. This also saves what is done for each item in turn: statements, look-ups of the same rows,
and code that is cold again after every other thing in between (a third of recording the end of a call, measured).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Final, Generic, TypeVar

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

AT_ONCE: Final = 128
"""As many rows as one commit takes where larger ones stop paying (measured: 100 reach nine tenths of the limit)."""


class Batcher(Generic[Item, Result]):
    """`work` writes the items of one unit. Each item is told of exactly once: to `written` or to `refused`, after the commit.

    When `work` raises, each of the items is tried alone, so that a bug with one is no harm to the others.
    """

    def __init__(
        self,
        *,
        store: Store,
        work: Callable[[Transaction, Sequence[Item]], Awaitable[Result]],
        written: Callable[[Sequence[Item], Result], None],
        refused: Callable[[Sequence[Item], Exception], None],
    ) -> None:
        self._store = store
        self._work = work
        self._written = written
        self._refused = refused
        self._waiting: deque[Item] = deque()
        self._units: set[asyncio.Task[None]] = set()
        self._asked = False
        """Whether a unit of work waits for its turn; it will take along what comes until then."""

    def add(self, item: Item) -> None:
        self._waiting.append(item)
        self._ask()

    async def drain(self) -> None:
        """Return when everything that was added is written or refused."""
        while self._units:
            await asyncio.wait(self._units)

    def _ask(self) -> None:
        if self._waiting and not self._asked:
            self._asked = True
            unit = asyncio.create_task(self._write())
            self._units.add(unit)
            unit.add_done_callback(self._units.discard)

    async def _write(self) -> None:
        batch: list[Item] = []

        @wraps(self._work)  # the unit goes by the name of its work
        async def take_and_work(tx: Transaction) -> Result:
            self._take(batch)
            return await self._work(tx, batch)

        try:
            result = await self._store.write(take_and_work)
        except StoreUnavailable as error:
            if not batch:  # it was refused before its turn came
                self._take(batch)
            self._refused(batch, error)
        except Exception:  # the boundary between a bug with one item and the others of its batch
            log.exception("batch.not_written", extra={"count": len(batch)})
            await self._one_by_one(batch)
        else:
            self._written(batch, result)

    def _take(self, batch: list[Item]) -> None:
        """Move what is there into the batch. Asked again, when a unit is run again, it takes along what has come since."""
        self._asked = False
        while self._waiting and len(batch) < AT_ONCE:
            batch.append(self._waiting.popleft())
        self._ask()

    async def _one_by_one(self, batch: Sequence[Item]) -> None:
        for item in batch:

            @wraps(self._work)
            async def work(tx: Transaction, item: Item = item) -> Result:
                return await self._work(tx, [item])

            try:
                self._written([item], await self._store.write(work))
            except Exception as error:  # noqa: BLE001 - the same boundary: whoever is told decides what it means
                self._refused([item], error)
