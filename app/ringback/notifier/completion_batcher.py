"""Records the ends of calls in batches: all that are submitted while the store is busy share one transaction."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ringback.attended_calls import AttendedCalls
from ringback.domain.call import Call
from ringback.domain.ports import Store, Transaction
from ringback.notifier.batcher import Batcher
from ringback.notifier.call_ends import LeasedCompletion
from ringback.notifier.recorder import Recorder


@dataclass(frozen=True, slots=True, eq=False)
class _PendingCompletion:
    leased: LeasedCompletion
    finished: asyncio.Future[Call | None]


class CompletionBatcher:
    def __init__(self, *, store: Store, recorder: Recorder, attended_calls: AttendedCalls) -> None:
        self._recorder = recorder
        self._attended_calls = attended_calls
        self._batcher = Batcher(
            store=store,
            write_batch=self._record_completions,
            on_written=_resolve_futures,
            on_failed=_fail_futures,
            principal_of=lambda pending: pending.leased.principal,
        )

    async def finish_call(self, leased: LeasedCompletion) -> Call | None:
        """Record the end and return the call after the commit; None if the lease is lost.

        Raises `StoreUnavailable` and other exceptions of the store. A completion whose caller is cancelled before the batch
        is written leaves the batch.
        """
        self._attended_calls.note_outcome(leased.call_id)
        pending = _PendingCompletion(leased, asyncio.get_running_loop().create_future())
        self._batcher.submit(pending)
        return await pending.finished

    async def drain(self) -> None:
        """Return when every submitted completion is written or has failed."""
        await self._batcher.drain()

    async def _record_completions(self, tx: Transaction, batch: Sequence[_PendingCompletion]) -> Sequence[Call | None]:
        wanted = [pending for pending in batch if not pending.finished.cancelled()]
        finished = await self._recorder.finish_leased_calls(tx, [pending.leased for pending in wanted])
        finished_by_pending = dict(zip(wanted, finished, strict=True))
        return [finished_by_pending.get(pending) for pending in batch]


def _resolve_futures(batch: Sequence[_PendingCompletion], finished: Sequence[Call | None]) -> None:
    for pending, call in zip(batch, finished, strict=True):
        if not pending.finished.done():
            pending.finished.set_result(call)


def _fail_futures(batch: Sequence[_PendingCompletion], error: Exception) -> None:
    for pending in batch:
        if not pending.finished.done():
            pending.finished.set_exception(error)
