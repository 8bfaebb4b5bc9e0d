"""Writes items together that are submitted one by one: one transaction for all that are waiting when its turn comes.

    submit ──▶ queue ──▶ a transaction is requested; when its turn comes, it takes up to `BATCH_SIZE_MAX` queued items
                                 ╰─▶ on_written(items, result), or on_failed(items, error)

Group commit saves commits only. A batch also saves work for each item: statements, reads of the same rows, and cold code
(a third of the time that recording the end of a call takes, measured).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import wraps
from typing import Any, Final, Generic, TypeVar

from ringback.domain.errors import RowsLocked, StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.log_context import leave_log_context

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

BATCH_SIZE_MAX: Final = 128
"""Larger transactions gain little (measured: 100 rows reach nine tenths of the maximal throughput)."""

TRANSACTIONS_MAX: Final = 2
"""Transactions of one batcher at once on an exclusive store: one commits while the other runs."""
SHARED_TRANSACTIONS_MAX: Final = 1
"""The same on a shared store, which would run each transaction at once, with the few items that wait then. They would also wait
for each other's locks: the head of a log, the row of a webhook. Measured on PostgreSQL: 0.37 round trips for a delivery instead
of 1.0, and a third less CPU."""


class Batcher(Generic[Item, Result]):
    """`write_batch` writes items in one transaction. Each item is then passed to either `on_written` or `on_failed`, once.

    If `write_batch` raises, each item is written alone, so that a bug with one item does not affect the others. If rows of one
    principal stay locked, each principal's items are written alone.
    """

    def __init__(
        self,
        *,
        store: Store,
        write_batch: Callable[[Transaction, Sequence[Item]], Awaitable[Result]],
        on_written: Callable[[Sequence[Item], Result], None],
        on_failed: Callable[[Sequence[Item], Exception], None],
        principal_of: Callable[[Item], Principal],
    ) -> None:
        self._store = store
        self._transactions_max = TRANSACTIONS_MAX if store.is_exclusive else SHARED_TRANSACTIONS_MAX
        self._write_batch = write_batch
        self._on_written = on_written
        self._on_failed = on_failed
        self._principal_of = principal_of
        self._queue: deque[Item] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_scheduled = False
        """Whether a transaction waits for its turn; it will take the items that are submitted until then."""
        self._running = 0
        """Transactions that have been requested and have not ended."""

    def submit(self, item: Item) -> None:
        self._queue.append(item)
        self._schedule_write()

    def submit_apart(self, items: Sequence[Item]) -> None:
        """Write the items of each principal alone, beside the next batches: a bad one affects no other principal."""
        for principal, those in self._group_by_principal(items).items():
            self._start_task(self._write_for(principal, those))

    async def drain(self) -> None:
        """Return when every submitted item is written or has failed."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _schedule_write(self) -> None:
        if self._queue and not self._is_scheduled and self._running < self._transactions_max:
            self._is_scheduled = True
            self._running += 1
            self._start_task(self._run_write())

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_write(self) -> None:
        leave_log_context()
        try:
            await self._write()
        finally:
            self._running -= 1
            self._schedule_write()

    async def _write(self) -> None:
        batch: list[Item] = []

        @wraps(self._write_batch)  # the store names transactions after their function
        async def fill_and_write(tx: Transaction) -> Result:
            self._fill_batch(batch)
            return await self._write_batch(tx, batch)

        try:
            result = await self._store.write(fill_and_write)
        except Exception as error:  # a bug with one item must not affect the others of its batch
            if not batch:  # the store failed before the turn of the transaction came
                self._fill_batch(batch)
            if isinstance(error, RowsLocked):
                self._write_by_principal(batch, error)
            elif isinstance(error, StoreUnavailable):
                self._on_failed(batch, error)
            else:
                log.exception("batch.not_written", extra={"count": len(batch)})
                await self._write_individually(batch)
        else:
            self._on_written(batch, result)

    def _fill_batch(self, batch: list[Item]) -> None:
        """Move queued items into the batch. A transaction that is run again also takes the items queued since."""
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
            except Exception as error:  # noqa: BLE001 - `on_failed` decides what an error means
                self._on_failed([item], error)

    def _write_by_principal(self, batch: Sequence[Item], error: RowsLocked) -> None:
        """Write the items of each principal beside the next batches: those whose rows are locked wait once more."""
        if len(self._group_by_principal(batch)) == 1:
            self._on_failed(batch, error)
        else:
            self.submit_apart(batch)

    def _group_by_principal(self, items: Sequence[Item]) -> Mapping[Principal, Sequence[Item]]:
        grouped: dict[Principal, list[Item]] = {}
        for item in items:
            grouped.setdefault(self._principal_of(item), []).append(item)
        return grouped

    async def _write_for(self, principal: Principal, items: Sequence[Item]) -> None:
        leave_log_context()

        @wraps(self._write_batch)
        async def write_items(tx: Transaction) -> Result:
            return await self._write_batch(tx, items)

        try:
            result = await self._store.write_for(principal, write_items)
        except StoreUnavailable as error:
            self._on_failed(items, error)
        except Exception:  # a bug with one item must not affect the others
            log.exception("batch.not_written", extra={"count": len(items)})
            await self._write_individually(items)
        else:
            self._on_written(items, result)
