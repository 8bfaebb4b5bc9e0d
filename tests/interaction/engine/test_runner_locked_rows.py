"""Heartbeats while other units have locked rows of running calls."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringback.domain.call import Call, CallPhase
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.call_rows import CallChange, CallQueue
from ringback.domain.errors import RowsLocked
from ringback.domain.ids import CallId
from ringback.domain.ports import Store, Transaction
from ringback.domain.signals import CALL_QUEUED_TOPIC
from tests.support.calls import make_calls
from tests.support.engine import WAIT_SECONDS, BlockingTool, Engine, ScriptedUpstreams, wait_until
from tests.support.executions import is_extended
from tests.support.stores import StoreWrapper

QUICK = {"heartbeat_seconds": 0.01}


class LockedRowStore(StoreWrapper):
    """A store in which another unit has locked the rows of running calls, and changes them before the heartbeat reads them."""

    def __init__(self, store: Any, change_rows: Callable[[], Awaitable[None]]) -> None:
        super().__init__(store)
        self._change_rows = change_rows
        self.is_locked = False
        self.was_read = asyncio.Event()

    async def write_heartbeat(self, work: Callable[[Transaction], Awaitable[Any]]) -> Any:
        return {} if self.is_locked else await super().write_heartbeat(work)

    async def write(self, work: Callable[[Transaction], Awaitable[Any]]) -> Any:
        if not (self.is_locked and work.__qualname__.endswith("extend")):
            return await super().write(work)
        self.is_locked = False
        await self._change_rows()
        self.was_read.set()
        return {}


@pytest.mark.requirement("R35")
async def test_a_heartbeat_that_waited_for_a_row_leaves_the_next_execution_of_its_call_alone(engine: Engine) -> None:
    (call,), tool = make_calls(engine, 1), BlockingTool()
    await engine.insert_calls(call)

    async def run_again() -> None:
        await queue_again(engine, call)
        await tool.wait_until_cancelled(1)
        await tool.wait_until_inside(1)

    store = LockedRowStore(engine.store, run_again)
    async with Engine(store, engine.clock).running_runner(ScriptedUpstreams(tool), **QUICK):
        await tool.wait_until_inside(1)
        store.is_locked = True
        await asyncio.wait_for(store.was_read.wait(), WAIT_SECONDS)
        await wait_until(partial(is_extended, engine, await engine.read_call(call)))
        tool.release.set()
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, len(tool.cancelled)) == (CallOutcome.RESULT, 1)


class LockedRows:
    """The rows of running calls as a heartbeat finds them: one stays locked, and another whenever all are extended at once."""

    def __init__(self, rows: CallQueue, locked: Call, busy: Call) -> None:
        self._rows = rows
        self._locked = locked.id
        self._busy = busy.id

    async def extend_leases(
        self, owner: str, call_ids: Collection[CallId], *, until: datetime, skip_locked: bool
    ) -> Mapping[CallId, bool]:
        if self._locked in call_ids and not skip_locked:
            raise RowsLocked("The row is locked.", waited_seconds=0.0)
        skipped = {self._locked} | ({self._busy} if len(call_ids) > 2 else set[CallId]())
        free = [call_id for call_id in call_ids if call_id not in skipped]
        return await self._rows.extend_leases(owner, free, until=until, skip_locked=skip_locked)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)


class StoreWithLockedRow(StoreWrapper):
    def __init__(self, store: Store, locked: Call, busy: Call) -> None:
        super().__init__(store)
        self._locked = locked, busy

    async def write(self, work: Callable[[Transaction], Awaitable[Any]]) -> Any:
        @wraps(work)
        async def run(tx: Transaction) -> Any:
            seen = SimpleNamespace(now=tx.now, call_queue=LockedRows(tx.call_queue, *self._locked))
            return await work(cast("Transaction", seen))

        return await super().write(run if work.__qualname__.endswith("extend") else work)


@pytest.mark.requirement("R35")
async def test_a_row_that_stays_locked_costs_no_other_call_its_lease(engine: Engine) -> None:
    """A row that was locked for a moment waited together with it, at each heartbeat, until its lease had run out."""
    (locked, busy, idle), tool = make_calls(engine, 3), BlockingTool()
    await engine.insert_calls(locked, busy, idle)
    store = StoreWithLockedRow(engine.store, locked, busy)

    async with Engine(store, engine.clock).running_runner(ScriptedUpstreams(tool), **QUICK):
        await tool.wait_until_inside(3)
        before = [await engine.read_call(call) for call in (locked, busy, idle)]
        await wait_until(partial(is_extended, engine, before[2]))
        await wait_until(partial(is_extended, engine, before[1]))
        assert not await is_extended(engine, before[0])
        tool.release.set()


async def queue_again(engine: Engine, call: Call) -> None:
    """As the execution does that ends without an outcome, because a newer login is stored."""

    async def write_queued(tx: Transaction) -> None:
        found = await tx.calls.get(call.id)
        assert found is not None
        queued = replace(found, phase=CallPhase.QUEUED, dispatched_at=None, lease_owner=None, lease_token=None)
        await tx.calls.update(queued, CallChange.QUEUED, expected=found.status, lease_token=None)
        tx.notify(CALL_QUEUED_TOPIC)

    await engine.store.write(write_queued)
