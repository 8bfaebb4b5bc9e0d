"""An outage that the janitor itself meets in its units: no holder could extend a lease meanwhile, so none is dead."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import pytest

from ringback.domain.call import Call, CallPhase
from ringback.domain.delivery import DeliveryState
from ringback.domain.erasure import ErasedDeliveryBatch, Erasure
from ringback.domain.errors import RowsLocked, StoreUnavailable
from ringback.domain.ids import WebhookId
from ringback.domain.login_waits import LoginResumption
from ringback.domain.ports import Store, Transaction
from ringback.janitor.config import JanitorConfig, Retention
from ringback.janitor.janitor import SLOW_TASK_REST_SECONDS, Janitor
from ringback.janitor.recovery import LEASE_GRACE_SECONDS, RESUME_GRACE_SECONDS
from ringback.storage.rows.calls import SqlCallQueue
from ringback.storage.rows.deliveries import SqlWebhookDeliveries
from ringback.storage.rows.erasures import SqlErasedDeliveries
from ringback.storage.rows.events import SqlEvents
from ringback.storage.rows.login_waits import SqlLoginWaits
from ringback.storage.rows.subscriptions import SqlSubscriptions
from ringback.storage.rows.unit import SqlRows
from ringback.storage.rows.webhooks import SqlWebhooks
from tests.support.builders import (
    make_api_key,
    make_call,
    make_delivery,
    make_event,
    make_identity_erasure,
    make_verified_webhook,
    make_webhook,
)
from tests.support.clock import START, FakeClock
from tests.support.engine import Engine, insert_dispatched_call, wait_until
from tests.support.examples import ALICE, BOB
from tests.support.stored_work import LEASE_SECONDS
from tests.support.stores import StoreWrapper
from tests.support.subscriptions import SubscriptionStage, with_key

T = TypeVar("T")
DEAD_AFTER_SECONDS = LEASE_SECONDS + LEASE_GRACE_SECONDS
ROW_WAIT_SECONDS = 10.0
STATEMENT_SECONDS = 15.0


async def assert_grace_before_end(janitor: Janitor, engine: Engine, clock: FakeClock, call: Call) -> None:
    """The next round leaves the call to its holder. The first one after the grace ends it: its lease was not extended."""
    await janitor.run_once()
    assert (await engine.read_call(call)).phase is CallPhase.RUNNING
    clock.advance(RESUME_GRACE_SECONDS)
    await janitor.run_once()
    assert (await engine.read_call(call)).is_final


class StoreBackAfterAnOutage(StoreWrapper):
    """Its first reading takes a minute, in which no holder could extend a lease."""

    def __init__(self, inner: Store, clock: FakeClock, *, fails: bool) -> None:
        super().__init__(inner)
        self._clock = clock
        self._fails = fails
        self._outages = 1

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        if self._outages:
            self._outages -= 1
            self._clock.advance(DEAD_AFTER_SECONDS)
            if self._fails:
                raise StoreUnavailable("The connection was lost.")
        return await super().read(work)


@pytest.mark.parametrize("fails", [True, False])
async def test_an_outage_that_ends_before_the_tasks_run_ends_no_lease(
    still: Engine, fake_clock: FakeClock, *, fails: bool
) -> None:
    call = await insert_dispatched_call(still, make_call())
    await still.insert_webhooks(make_webhook())
    store = StoreBackAfterAnOutage(still.store, fake_clock, fails=fails)
    janitor = Engine(store, fake_clock).make_janitor()

    await assert_grace_before_end(janitor, still, fake_clock, call)


class DiskThatStoodStill(StoreWrapper):
    """Its first writing unit takes a minute, in which no holder could extend a lease: before its turn, or in its commit."""

    def __init__(self, inner: Store, clock: FakeClock, *, in_commit: bool) -> None:
        super().__init__(inner)
        self._clock = clock
        self._in_commit = in_commit
        self._stalls = 1

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        stalls, self._stalls = self._stalls, 0
        if stalls and not self._in_commit:
            self._clock.advance(DEAD_AFTER_SECONDS)
        written = await super().write(work)
        if stalls and self._in_commit:
            self._clock.advance(DEAD_AFTER_SECONDS)
        return written


@pytest.mark.parametrize("has_earlier", [True, False])
@pytest.mark.parametrize("in_commit", [True, False])
async def test_a_disk_that_stands_still_while_a_task_runs_ends_no_lease(
    still: Engine, fake_clock: FakeClock, *, in_commit: bool, has_earlier: bool
) -> None:
    """With an earlier call, whose holder is dead, the unit that stands still is the one that recovers calls."""
    if has_earlier:
        await insert_dispatched_call(still, make_call())
        fake_clock.advance(DEAD_AFTER_SECONDS)
    call = await insert_dispatched_call(still, make_call())
    store = DiskThatStoodStill(still.store, fake_clock, in_commit=in_commit)
    janitor = Engine(store, fake_clock).make_janitor()

    await janitor.run_once()
    await assert_grace_before_end(janitor, still, fake_clock, call)


class StoreWithALockedRow(StoreWrapper):
    """A row of an overdue call stays locked, as by a node that was cut off in the middle of a statement."""

    def __init__(self, inner: Store, clock: FakeClock) -> None:
        super().__init__(inner)
        self._clock = clock

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        if getattr(work, "__name__", "") == "_finish_overdue_calls":
            self._clock.advance(ROW_WAIT_SECONDS)
            raise RowsLocked("The row is locked.", waited_seconds=ROW_WAIT_SECONDS)
        return await super().write(work)


class StoreWithADamagedRow(StoreWrapper):
    """The page of an overdue call is damaged. PostgreSQL refuses each statement that reads it, and no other one."""

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        if getattr(work, "__name__", "") == "_finish_overdue_calls":
            raise StoreUnavailable("PostgreSQL refuses: invalid page in block 7.", needs_operator=True)
        return await super().write(work)


class StoreWithASlowStatement(StoreWrapper):
    """PostgreSQL ends the statement about overdue calls each time, as one that takes too long. It carries out all others."""

    def __init__(self, inner: Store, clock: FakeClock) -> None:
        super().__init__(inner)
        self._clock = clock

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        if getattr(work, "__name__", "") == "_finish_overdue_calls":
            self._clock.advance(STATEMENT_SECONDS)
            raise StoreUnavailable("The database cannot be used now: canceling statement due to statement timeout.")
        return await super().write(work)


@pytest.mark.parametrize("trouble", ["locked", "damaged", "slow"])
async def test_a_row_that_stays_locked_or_damaged_or_is_slow_costs_only_the_task_that_needs_it(
    still: Engine, fake_clock: FakeClock, trouble: str
) -> None:
    await still.insert_calls(make_call(phase=CallPhase.PARKED, deadline_at=START))
    store = {
        "locked": StoreWithALockedRow(still.store, fake_clock),
        "damaged": StoreWithADamagedRow(still.store),
        "slow": StoreWithASlowStatement(still.store, fake_clock),
    }[trouble]
    janitor = Engine(store, fake_clock).make_janitor()
    call = await insert_dispatched_call(still, make_call(principal=BOB))
    stop = asyncio.Event()
    running = asyncio.create_task(janitor.run(stop))

    async def is_recovered() -> bool:
        fake_clock.advance(JanitorConfig().interval_seconds)
        return (await still.read_call(call)).is_final

    try:
        await wait_until(is_recovered)
    finally:
        stop.set()
        await running


async def test_the_row_was_awaited_for_a_part_of_the_outage_only(still: Engine, fake_clock: FakeClock) -> None:
    """The whole database stood still, and the unit then waited in vain for its row."""
    await still.insert_calls(make_call(phase=CallPhase.PARKED, deadline_at=START))
    call = await insert_dispatched_call(still, make_call(principal=BOB))
    await still.insert_webhooks(make_webhook(principal=BOB))

    class StandingStill(StoreWithALockedRow):
        async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
            if getattr(work, "__name__", "") == "_finish_overdue_calls":
                fake_clock.advance(DEAD_AFTER_SECONDS)
            return await super().write(work)

    janitor = Engine(StandingStill(still.store, fake_clock), fake_clock).make_janitor()
    await janitor.run_once()
    await janitor.run_once()

    assert (await still.read_call(call)).phase is CallPhase.RUNNING


async def test_a_task_that_is_too_slow_with_many_rows_handles_fewer_until_it_succeeds(
    still: Engine, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL ended it each time, at the same first rows, so nothing was removed any more."""
    await still.store.write(lambda tx: tx.events.insert([make_event(seq=seq) for seq in range(1, 4)]))
    fake_clock.advance(Retention().event_seconds + 60)
    remove, limits = SqlEvents.remove, list[int]()

    async def remove_slowly(self: SqlEvents, *, cutoff: datetime, limit: int) -> int:
        limits.append(limit)
        if limit > 60:
            fake_clock.advance(STATEMENT_SECONDS)
            raise StoreUnavailable("The database cannot be used now: canceling statement due to statement timeout.")
        return await remove(self, cutoff=cutoff, limit=limit)

    monkeypatch.setattr(SqlEvents, "remove", remove_slowly)
    janitor = still.make_janitor(batch_size=200)
    for _ in range(3):
        await janitor.run_once()
        fake_clock.advance(SLOW_TASK_REST_SECONDS)

    assert (limits, await still.read_events()) == ([200, 100, 50], [])


async def test_a_task_with_a_smaller_batch_of_its_own_handles_half_of_it_after_one_turn_that_was_too_slow(
    still: Engine, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = make_call(deadline_at=START)
    await still.insert_calls(call)
    fake_clock.advance(DEAD_AFTER_SECONDS)
    find_past_deadline, limits = SqlCallQueue.find_past_deadline, list[int]()

    async def find_slowly(self: SqlCallQueue, *, now: datetime, grace_end: datetime, limit: int) -> Sequence[Call]:
        limits.append(limit)
        if limit > 30:
            fake_clock.advance(STATEMENT_SECONDS)
            raise StoreUnavailable("The database cannot be used now: canceling statement due to statement timeout.")
        return await find_past_deadline(self, now=now, grace_end=grace_end, limit=limit)

    monkeypatch.setattr(SqlCallQueue, "find_past_deadline", find_slowly)
    janitor = still.make_janitor(batch_size=200)
    for _ in range(2):
        await janitor.run_once()
        fake_clock.advance(SLOW_TASK_REST_SECONDS)

    assert (limits, (await still.read_call(call)).is_final) == ([50, 25], True)


async def test_a_release_or_an_erasure_that_is_too_slow_handles_half_as_many_rows(
    still: Engine, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL ended each of them at the same rows again and again: nothing was released, and nothing erased."""
    webhook = make_verified_webhook()
    await still.insert_webhooks(webhook)
    await still.insert_deliveries(make_delivery(webhook_id=webhook.id, state=DeliveryState.HELD))
    erasure = make_identity_erasure(BOB)
    await still.store.write(lambda tx: tx.erasures.insert(erasure))
    release, delete = SqlWebhookDeliveries.release_held, SqlErasedDeliveries.delete_of_principal
    released, erased = list[int](), list[int]()

    async def release_slowly(self: SqlWebhookDeliveries, webhook_id: WebhookId, *, now: datetime, limit: int) -> int:
        refuse_many(fake_clock, limit, released)
        return await release(self, webhook_id, now=now, limit=limit)

    async def erase_slowly(self: SqlErasedDeliveries, erasure: Erasure, *, limit: int) -> ErasedDeliveryBatch:
        refuse_many(fake_clock, limit, erased)
        return await delete(self, erasure, limit=limit)

    monkeypatch.setattr(SqlWebhookDeliveries, "release_held", release_slowly)
    monkeypatch.setattr(SqlErasedDeliveries, "delete_of_principal", erase_slowly)
    janitor = still.make_janitor(batch_size=200)
    for _ in range(2):
        await janitor.run_once()
        fake_clock.advance(SLOW_TASK_REST_SECONDS)

    assert (released[:2], erased[:2]) == ([200, 100], [200, 100])


@pytest.mark.parametrize(
    ("rows", "method"), [(SqlLoginWaits, "list_waiting"), (SqlSubscriptions, "list_keys"), (SqlWebhooks, "list_page")]
)
async def test_a_login_or_an_end_of_subscriptions_whose_batch_is_too_slow_handles_half_of_it(
    still: Engine, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch, rows: type[SqlRows], method: str
) -> None:
    """Their batches had one size: after a statement that took too long, the next one was the same."""
    resumption = LoginResumption(upstream="git", owner=ALICE, tokens_version=1, worked_at=START)
    await still.store.write(lambda tx: tx.login_waits.save_resumption(resumption))
    key = make_api_key()
    await still.store.write(lambda tx: tx.api_keys.insert(key))
    await SubscriptionStage(still).subscribe(caller=with_key(key.id))
    await still.insert_webhooks(make_verified_webhook(last_error="http_5xx", failing_since=START))
    run, limits = getattr(rows, method), list[int]()

    async def run_slowly_at_first(self: SqlRows, *arguments: Any, limit: int, **named: Any) -> Any:
        limits.append(limit)
        if len(limits) == 1:
            fake_clock.advance(STATEMENT_SECONDS)
            raise StoreUnavailable("The database cannot be used now: canceling statement due to statement timeout.")
        return await run(self, *arguments, limit=limit, **named)

    monkeypatch.setattr(rows, method, run_slowly_at_first)
    janitor = still.make_janitor(batch_size=200)
    for _ in range(2):
        await janitor.run_once()
        fake_clock.advance(SLOW_TASK_REST_SECONDS)

    assert limits == [50, 25]


def refuse_many(clock: FakeClock, limit: int, limits: list[int]) -> None:
    """Note the limit. A statement with more than a hundred rows takes too long."""
    limits.append(limit)
    if limit > 100:
        clock.advance(STATEMENT_SECONDS)
        raise StoreUnavailable("The database cannot be used now: canceling statement due to statement timeout.")
