"""The ends of calls, recorded together: as many as come while the store is busy with others."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ringback.domain.call import Call
from ringback.domain.ports import Store, Transaction
from ringback.notifier.batcher import Batcher
from ringback.notifier.recorder import CompletionRequest, Recorder

PrepareCompletion = Callable[[Transaction], Awaitable[CompletionRequest | None]]
"""The end as it is true when its turn comes; None when it is not ours to write any more."""


@dataclass(frozen=True, slots=True, eq=False)
class _PendingCompletion:
    prepare: PrepareCompletion
    completed: asyncio.Future[Call | None]


class CompletionBatcher:
    def __init__(self, *, store: Store, recorder: Recorder) -> None:
        self._recorder = recorder
        self._batcher = Batcher(
            store=store, write_batch=self._record_completions, on_written=_resolve_futures, on_failed=_fail_futures
        )

    async def finish_call(self, prepare: PrepareCompletion) -> Call | None:
        """As `Recorder.finish`, after the commit; raises what the store raises, `StoreUnavailable` among it.

        A caller that goes before its turn takes its end along.
        """
        pending = _PendingCompletion(prepare, asyncio.get_running_loop().create_future())
        self._batcher.submit(pending)
        return await pending.completed

    async def drain(self) -> None:
        await self._batcher.drain()

    async def _record_completions(self, tx: Transaction, batch: Sequence[_PendingCompletion]) -> Sequence[Call | None]:
        requests = [None if pending.completed.cancelled() else await pending.prepare(tx) for pending in batch]
        completed = iter(await self._recorder.finish_calls(tx, [end for end in requests if end is not None]))
        return [None if end is None else next(completed) for end in requests]


def _resolve_futures(batch: Sequence[_PendingCompletion], completed: Sequence[Call | None]) -> None:
    for pending, call in zip(batch, completed, strict=True):
        if not pending.completed.done():
            pending.completed.set_result(call)


def _fail_futures(batch: Sequence[_PendingCompletion], error: Exception) -> None:
    for pending in batch:
        if not pending.completed.done():
            pending.completed.set_exception(error)
