"""The rounds of the janitor: their batches and pauses, and tasks that fail or have nothing to do."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from ringback.domain.call import Call, CallPhase, CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.call_rows import REMOVED_BYTES_MAX
from ringback.domain.delivery import DeliveryState
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.janitor.config import JanitorConfig
from ringback.janitor.janitor import ROUND_PAUSE_SECONDS, Janitor
from tests.support.builders import make_call, make_delivery, make_event
from tests.support.clock import START, FakeClock
from tests.support.engine import WAIT_SECONDS, Engine
from tests.support.stores import FailingStore, StoreWrapper

T = TypeVar("T")
DAY = 86400.0


async def test_a_large_backlog_is_processed_in_batches(still: Engine, fake_clock: FakeClock) -> None:
    calls = [make_call() for _ in range(5)]
    await still.insert_calls(*calls)
    fake_clock.advance(3600)
    janitor = still.make_janitor(batch_size=2)

    more = [await janitor.run_once() for _ in range(3)]

    assert more == [True, True, False]
    assert {(await still.read_call(call)).outcome for call in calls} == {CallOutcome.REJECTED}


async def test_large_calls_expire_a_few_at_a_time(still: Engine, fake_clock: FakeClock) -> None:
    """SQLite overwrites what it deletes: 200 results of 4 MB in one transaction stopped the service for 20 seconds."""
    half = REMOVED_BYTES_MAX // 2
    large_arguments = {"text": "x" * (half - 100)}
    calls = [
        make_ended_call(result_bytes=half),
        make_ended_call(result_bytes=0, arguments=large_arguments),
        make_ended_call(result_bytes=half),
        make_ended_call(result_bytes=3 * half),
        make_ended_call(result_bytes=None),
        make_ended_call(result_bytes=half),
    ]
    await still.insert_calls(*calls)
    fake_clock.advance(7 * DAY)
    janitor = still.make_janitor()

    async def count_left() -> int:
        return len(await still.store.read(lambda tx: tx.calls.get_many([call.id for call in calls])))

    left: list[int] = []
    while await janitor.run_once():
        left.append(await count_left())

    assert left == [4, 3, 2, 0]


async def test_large_bodies_and_events_are_removed_a_few_at_a_time(still: Engine, fake_clock: FakeClock) -> None:
    """200 bodies of 256 KiB were one transaction."""
    body = b"x" * (REMOVED_BYTES_MAX // 3)
    ended = {"state": DeliveryState.DELIVERED, "finished_at": START}
    deliveries = [make_delivery(**ended, body=body) for _ in range(3)] + [make_delivery(**ended) for _ in range(3)]
    await still.insert_deliveries(*deliveries)
    events = [make_event(seq=seq, data={"text": "x" * (REMOVED_BYTES_MAX // 3)}) for seq in range(1, 4)]
    await still.store.write(lambda tx: tx.events.insert(events))
    fake_clock.advance(14 * DAY + 60)
    janitor = still.make_janitor()

    async def count_left() -> tuple[int, int]:
        return len(await still.read_deliveries()), len(await still.read_events())

    left: list[tuple[int, int]] = []
    while await janitor.run_once():
        left.append(await count_left())

    assert left == [(4, 1), (0, 0)]


def make_ended_call(*, result_bytes: int | None, arguments: dict[str, Any] | None = None) -> Call:
    return make_call(
        arguments=arguments or {},
        status=CallStatus.COMPLETED,
        phase=CallPhase.ENDED,
        outcome=CallOutcome.RESULT,
        result_bytes=result_bytes,
        finished_at=START,
        expires_at=START + timedelta(days=7),
    )


async def test_the_pause_between_rounds_is_short_while_there_is_more_to_do(
    still: Engine, still_unsteady: FailingStore, fake_clock: FakeClock
) -> None:
    calls = [make_call() for _ in range(5)]
    await still.insert_calls(*calls)
    fake_clock.advance(DAY)
    rests: list[tuple[float, int]] = []
    stop = asyncio.Event()

    class Resting(FakeClock):
        async def sleep(self, seconds: float) -> None:
            rests.append((seconds, sum([(await still.read_call(call)).is_final for call in calls])))
            if len(rests) == 1:
                still_unsteady.refusals = 1
            elif len(rests) == 4:
                stop.set()
                await asyncio.Event().wait()

    clock = Resting()
    janitor = Janitor(
        store=still.store,
        recorder=still.recorder,
        measurements=still.measurements,
        clock=clock,
        config=JanitorConfig(batch_size=2),
    )
    await asyncio.wait_for(janitor.run(stop), WAIT_SECONDS)

    assert rests == [(ROUND_PAUSE_SECONDS, 2), (5, 2), (ROUND_PAUSE_SECONDS, 4), (5, 5)]
    assert still_unsteady.refusals == 0


async def test_a_task_that_always_fills_its_batch_does_not_delay_the_others(
    still: Engine, fake_clock: FakeClock
) -> None:
    old = make_delivery(state=DeliveryState.DELIVERED, finished_at=START)
    calls = [make_call() for _ in range(50)]
    await still.insert_calls(*calls)
    await still.insert_deliveries(old)
    fake_clock.advance(31 * DAY)

    more = await still.make_janitor(batch_size=1).run_once()

    assert more
    assert sum([(await still.read_call(call)).is_final for call in calls]) == 1
    assert await still.store.read(lambda tx: tx.deliveries.get(old.id)) is None


class StoreRefusingOneTask(StoreWrapper):
    """Refuses one task of the janitor, as a damaged page does."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.is_away = False

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        if self.is_away or work.__qualname__ == "RecoveryTasks._finish_overdue_calls":
            raise StoreUnavailable("The database disk image is malformed.")
        return await super().write(work)


async def test_a_task_that_alone_is_refused_delays_no_other_and_one_beside_others_ends_the_round(
    still: Engine, fake_clock: FakeClock
) -> None:
    old = make_delivery(state=DeliveryState.DELIVERED, finished_at=START)
    await still.insert_calls(make_call())
    await still.insert_deliveries(old)
    fake_clock.advance(31 * DAY)
    store = StoreRefusingOneTask(still.store)
    janitor = Engine(store, fake_clock).make_janitor()

    await janitor.run_once()

    assert await still.store.read(lambda tx: tx.deliveries.get(old.id)) is None
    store.is_away = True
    with pytest.raises(StoreUnavailable):
        await janitor.run_once()


async def test_a_task_that_always_fails_delays_the_others_by_one_round_at_most(
    still: Engine, fake_clock: FakeClock
) -> None:
    class BrokenTask(StoreWrapper):
        async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
            if work.__qualname__ == "RecoveryTasks._finish_overdue_calls":
                raise ZeroDivisionError
            return await super().write(work)

    old = make_delivery(state=DeliveryState.DELIVERED, finished_at=START)
    await still.insert_calls(make_call())
    await still.insert_deliveries(old)
    fake_clock.advance(31 * DAY)
    broken = Engine(BrokenTask(still.store), fake_clock).make_janitor()

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await broken.run_once()

    assert await still.store.read(lambda tx: tx.deliveries.get(old.id)) is None


class CountingStore(StoreWrapper):
    """Counts the units of work, and refuses those that read if the test says so."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.writes: list[str] = []
        self.reads = 0
        self.refuses_reads = False

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        self.writes.append(work.__qualname__)
        return await super().write(work)

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        self.reads += 1
        if self.refuses_reads:
            raise StoreUnavailable("The database disk image is malformed.")
        return await super().read(work)


async def test_a_round_without_work_is_one_unit_that_reads_and_the_saved_time(
    still: Engine, fake_clock: FakeClock
) -> None:
    store = CountingStore(still.store)

    more = await Engine(store, fake_clock).make_janitor().run_once()

    assert not more
    assert (store.reads, store.writes) == (1, ["Janitor._save_scheduling_time"])


async def test_a_janitor_that_cannot_ask_what_there_is_to_do_runs_every_task(
    still: Engine, fake_clock: FakeClock
) -> None:
    store = CountingStore(still.store)
    call = make_call()
    await still.insert_calls(call)
    fake_clock.advance(31 * DAY)
    store.refuses_reads = True

    await Engine(store, fake_clock).make_janitor().run_once()

    assert (await still.read_call(call)).is_final
    assert len(store.writes) > 20


async def test_a_stopped_janitor_does_not_begin_another_round(still: Engine) -> None:
    call, stop = make_call(phase=CallPhase.RUNNING, cancel_requested=True), asyncio.Event()
    await still.insert_calls(call)
    stop.set()

    await asyncio.wait_for(still.make_janitor().run(stop), WAIT_SECONDS)

    assert await still.read_call(call) == call
