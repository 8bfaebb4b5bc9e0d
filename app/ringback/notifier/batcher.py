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

BATCH_SIZE_MAX: Final = 128
"""As many rows as one commit takes where larger ones stop paying (measured: 100 reach nine tenths of the limit)."""


class Batcher(Generic[Item, Result]):
    """`work` writes the items of one unit. Each item is told of exactly once: to `written` or to `refused`, after the commit.

    When `work` raises, each of the items is tried alone, so that a bug with one is no harm to the others.
    """

    def __init__(
        self,
        *,
        store: Store,
        write_batch: Callable[[Transaction, Sequence[Item]], Awaitable[Result]],
        on_written: Callable[[Sequence[Item], Result], None],
        on_failed: Callable[[Sequence[Item], Exception], None],
    ) -> None:
        self._store = store
        self._write_batch = write_batch
        self._on_written = on_written
        self._on_failed = on_failed
        self._queue: deque[Item] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_scheduled = False
        """Whether a unit of work waits for its turn; it will take along what comes until then."""

    def submit(self, item: Item) -> None:
        self._queue.append(item)
        self._schedule_write()

    async def drain(self) -> None:
        """Return when everything that was added is written or refused."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _schedule_write(self) -> None:
        if self._queue and not self._is_scheduled:
            self._is_scheduled = True
            task = asyncio.create_task(self._run_write())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run_write(self) -> None:
        batch: list[Item] = []

        @wraps(self._write_batch)  # the unit goes by the name of its work
        async def fill_and_write(tx: Transaction) -> Result:
            self._fill_batch(batch)
            return await self._write_batch(tx, batch)

        try:
            result = await self._store.write(fill_and_write)
        except StoreUnavailable as error:
            if not batch:  # it was refused before its turn came
                self._fill_batch(batch)
            self._on_failed(batch, error)
        except Exception:  # the boundary between a bug with one item and the others of its batch
            log.exception("batch.not_written", extra={"count": len(batch)})
            await self._write_individually(batch)
        else:
            self._on_written(batch, result)

    def _fill_batch(self, batch: list[Item]) -> None:
        """Move what is there into the batch. Asked again, when a unit is run again, it takes along what has come since."""
        self._is_scheduled = False
        while self._queue and len(batch) < BATCH_SIZE_MAX:
            batch.append(self._queue.popleft())
        self._schedule_write()

    async def _write_individually(self, batch: Sequence[Item]) -> None:
        for item in batch:

            @wraps(self._write_batch)
            async def write_item(tx: Transaction, item: Item = item) -> Result:
                return await self._write_batch(tx, [item])

            try:
                self._on_written([item], await self._store.write(write_item))
            except Exception as error:  # noqa: BLE001 - the same boundary: whoever is told decides what it means
                self._on_failed([item], error)
