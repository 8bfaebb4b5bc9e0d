"""The ends of calls, recorded together: as many as come while the store is busy with others."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ringback.domain.call import Call
from ringback.domain.ports import Store, Transaction
from ringback.notifier.batcher import Batcher
from ringback.notifier.record import End, Recorder

Prepare = Callable[[Transaction], Awaitable[End | None]]
"""The end as it is true when its turn comes; None when it is not ours to write any more."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    prepare: Prepare
    ended: asyncio.Future[Call | None]


class Ends:
    def __init__(self, *, store: Store, recorder: Recorder) -> None:
        self._recorder = recorder
        self._batcher = Batcher(store=store, work=self._record, written=_tell, refused=_refuse)

    async def finish(self, prepare: Prepare) -> Call | None:
        """As `Recorder.finish`, after the commit; raises what the store raises, `StoreUnavailable` among it.

        A caller that goes before its turn takes its end along.
        """
        waiting = _Waiting(prepare, asyncio.get_running_loop().create_future())
        self._batcher.add(waiting)
        return await waiting.ended

    async def drain(self) -> None:
        await self._batcher.drain()

    async def _record(self, tx: Transaction, batch: Sequence[_Waiting]) -> Sequence[Call | None]:
        ends = [None if waiting.ended.cancelled() else await waiting.prepare(tx) for waiting in batch]
        ended = iter(await self._recorder.finish_all(tx, [end for end in ends if end is not None]))
        return [None if end is None else next(ended) for end in ends]


def _tell(batch: Sequence[_Waiting], ended: Sequence[Call | None]) -> None:
    for waiting, call in zip(batch, ended, strict=True):
        if not waiting.ended.done():
            waiting.ended.set_result(call)


def _refuse(batch: Sequence[_Waiting], error: Exception) -> None:
    for waiting in batch:
        if not waiting.ended.done():
            waiting.ended.set_exception(error)
