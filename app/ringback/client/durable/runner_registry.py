"""The runners of one caller: one for each call that a request, a join or an open connection needs at the moment."""

import asyncio
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

from ringback.client.durable.call_runner import CallRunner
from ringback.client.durable.clock import DurableClock
from ringback.client.durable.errors import UnknownHandle
from ringback.client.durable.handle import CallHandle
from ringback.client.durable.journal import CallJournal
from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.record import CallRecord
from ringback.client.durable.target import CallTarget


class RunnerRegistry:
    def __init__(self, target: CallTarget, journal: CallJournal, clock: DurableClock, *, holder: str) -> None:
        """`holder` names this caller in the leases of its calls."""
        self._holder = holder
        self._target = target
        self._journal = journal
        self._clock = clock
        self._runners: dict[str, CallRunner] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def holder(self) -> str:
        """Names this caller in this process: a forked one has a copy, and gets no responses to its requests."""
        return f"{self._holder}-{os.getpid()}"

    def __len__(self) -> int:
        return len(self._runners)

    def get(self, call_id: str) -> CallRunner | None:
        return self._runners.get(call_id)

    @contextmanager
    def use_runner(self, record: CallRecord) -> Generator[CallRunner]:
        """The runner of the call, until the end of the block; a new one begins with this record."""
        runner = self._runners.get(record.handle.id) or self._add(record)
        with runner.in_use():
            yield runner

    def _add(self, record: CallRecord) -> CallRunner:
        call = LocalCall(record, self._journal, self._clock, holder=self.holder)
        runner = CallRunner(call, self._target, tasks=self._tasks, on_idle=self._remove)
        self._runners[record.handle.id] = runner
        return runner

    @asynccontextmanager
    async def using(self, handle: CallHandle | str) -> AsyncGenerator[CallRunner]:
        """The runner of the call until the end of the block, with the record as the state has it.

        Raises ValueError for a handle of another target, and `UnknownHandle` if the state does not hold the call.
        """
        if isinstance(handle, CallHandle) and handle.target != self._target.url:
            raise ValueError(f"The handle is of {handle.target}, and this caller's target is {self._target.url}.")
        call_id = handle if isinstance(handle, str) else handle.id
        known = self._runners.get(call_id)
        record = await self.read_record(call_id, handle) if known is None else known.call.record
        with self.use_runner(record) as runner:
            if known is not None or runner.call.record is not record:  # the runner has a record of its own
                await runner.call.refresh()
            yield runner

    async def read_record(self, call_id: str, handle: CallHandle | str | None = None) -> CallRecord:
        """What the state holds of the call. Raises `UnknownHandle`."""
        record = await self._journal.read(call_id)
        if record is None:
            raise UnknownHandle(self._explain_unknown(call_id, handle))
        return record

    async def stop_all(self) -> None:
        await asyncio.gather(*(runner.stop() for runner in list(self._runners.values())))
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _explain_unknown(self, call_id: str, handle: CallHandle | str | None) -> str:
        if not self._journal.is_shared or (isinstance(handle, CallHandle) and not handle.state_is_shared):
            return (
                f"The state does not hold call {call_id}. A state in memory (MemoryRequestState, the default) is only in the "
                "process that requested the call, so another process cannot join. Request the call with a state that both "
                "share: DurableCaller(target, state=SQLiteRequestState('calls.db')), or RedisRequestState."
            )
        kept = f"The state does not hold call {call_id}: it was forgotten, has expired, or is in another state."
        if not isinstance(handle, CallHandle) or handle.call_id is None:
            return kept
        return f"{kept} Ringback may still have its result: RingbackClient.result({handle.call_id!r})."

    def _remove(self, runner: CallRunner) -> None:
        if self._runners.get(runner.call.handle.id) is runner:
            del self._runners[runner.call.handle.id]
