"""What the holder of a lease knows of its call while reads and writes overlap."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from ringback.domain.call import MRTR_DRIVER, CallPhase, Handle
from ringback.domain.clock import seconds
from ringback.domain.ports import Store, Transaction
from ringback.runner.drivers.driver import LeaseLost
from ringback.runner.leased_call import LeasedCall
from ringback.upstreams.dispatch_records import get_dispatch_record
from tests.support.builders import make_call
from tests.support.engine import Engine
from tests.support.leased_calls import make_lease_end, make_leased_call
from tests.support.stores import StoreWrapper

T = TypeVar("T")


class SlowRead(StoreWrapper):
    """Holds the result of the first read."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.has_read, self.released = asyncio.Event(), asyncio.Event()

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        value = await self._store.read(work)
        if not self.has_read.is_set():
            self.has_read.set()
            await self.released.wait()
        return value


class SlowWrite(StoreWrapper):
    """Holds the results of writes once a test says so."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.holds = False
        self.has_written, self.released = asyncio.Event(), asyncio.Event()

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        value = await self._store.write(work)
        if self.holds:
            self.has_written.set()
            await self.released.wait()
        return value


async def lease(engine: Engine, store: Store, **fields: Any) -> LeasedCall:
    until = engine.clock.now() + seconds(30)
    call = make_call(phase=CallPhase.RUNNING, lease_owner="one", lease_token="held", lease_until=until, **fields)
    await engine.insert_calls(call)
    return make_leased_call(engine, replace(call, arguments=None), store=store)


async def test_a_read_that_began_before_the_dispatch_does_not_undo_it(still: Engine) -> None:
    """Otherwise a node that stops at this moment hands a call back that it has just sent, and another node sends it again."""
    store = SlowRead(still.store)
    leased = await lease(still, store)

    reading = asyncio.create_task(leased.reread_call())
    await store.has_read.wait()
    await leased.mark_dispatched(trusts_lease=True)
    store.released.set()
    await reading
    await make_lease_end(still, leased, store=store).requeue_call()

    stored = await still.store.read(lambda tx: tx.calls.get(leased.call.id))
    assert stored is not None
    assert (stored.phase, str(stored.outcome), stored.runs) == (CallPhase.ENDED, "unknown", 1)


async def test_a_read_that_began_before_the_large_arguments_were_read_does_not_forget_them(still: Engine) -> None:
    """Otherwise the call ends as `unknown` although it was not sent: it cannot be sent without arguments."""
    store = SlowRead(still.store)
    leased = await lease(still, store, arguments={"text": "large"})

    reading = asyncio.create_task(leased.reread_call())
    await store.has_read.wait()
    await leased.read_arguments()
    store.released.set()
    await reading

    assert leased.call.arguments == {"text": "large"}


async def test_a_round_that_is_given_up_before_it_is_sent_again_is_sent_by_the_next_process(still: Engine) -> None:
    """Otherwise the call ends as `unknown`, although its upstream refused the round and nothing was sent after it."""
    store = SlowWrite(still.store)
    between_rounds = Handle(driver=MRTR_DRIVER, data={"request_state": "state", "round": 1})
    leased = await lease(still, store, handle=between_rounds, dispatched_at=still.clock.now(), runs=1)
    leased.begin_run()
    record = get_dispatch_record()
    assert record is not None
    await leased.save_handle(None)
    await record.record_unsent()

    store.holds = True
    sending_again = asyncio.create_task(record.record_dispatch())
    await store.has_written.wait()
    leased.give_up_run()
    store.released.set()
    with pytest.raises(LeaseLost):
        await sending_again
    await leased.end_run()
    await make_lease_end(still, leased, store=store).requeue_call()

    stored = await still.store.read(lambda tx: tx.calls.get(leased.call.id))
    assert stored is not None
    assert (stored.phase, stored.outcome, stored.handle) == (CallPhase.QUEUED, None, between_rounds)
