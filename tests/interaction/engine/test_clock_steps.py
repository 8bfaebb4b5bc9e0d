"""The wall clock is set while work waits: nothing is lost or done twice, and nothing ends before its time or long after."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from ringback.domain.call import CallPhase
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.clock import seconds
from ringback.domain.delivery import DeliveryState
from ringback.domain.errors import CallExpired, StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.domain.retry import RetryProfile
from ringback.janitor.recovery import LEASE_GRACE_SECONDS, OVERDUE_GRACE_SECONDS
from ringback.services.calls.call_reads import get_own_call
from tests.support.builders import make_call, make_delivery, make_webhook
from tests.support.clock import WallClockSteps
from tests.support.engine import Engine
from tests.support.examples import ALICE
from tests.support.stored_work import LEASE_SECONDS
from tests.support.stores import StoreWrapper, open_test_store

T = TypeVar("T")

HOUR = 3600.0
DAY = 24 * HOUR
steps = pytest.mark.parametrize("step", [HOUR, -HOUR, DAY, -DAY])
SLEW = 1.02
"""So much longer a thing may take while scheduling time runs slow, and a little."""


@pytest.fixture
def clock() -> WallClockSteps:
    return WallClockSteps()


@pytest.fixture
async def engine(tmp_path: Path, clock: WallClockSteps) -> AsyncGenerator[Engine]:
    async with open_test_store(tmp_path, clock) as store:
        yield Engine(store, clock)


class RecordingReceiver:
    """Responds as a test sets, and keeps the requests."""

    def __init__(self, *codes: int) -> None:
        self._codes = list(codes)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(self._codes.pop(0) if self._codes else 200)


@steps
async def test_a_retry_goes_when_its_pause_is_over(engine: Engine, clock: WallClockSteps, step: float) -> None:
    webhook = make_webhook(retries=RetryProfile.MINUTES)
    delivery = make_delivery(webhook_id=webhook.id, due_at=clock.now(), give_up_at=clock.now() + timedelta(hours=1))
    await engine.insert_webhooks(webhook)
    await engine.insert_deliveries(delivery)
    receiver = RecordingReceiver(500, 500)
    dispatcher = engine.make_dispatcher(receiver)

    assert await dispatcher.run_once() == 1
    clock.step(step)
    assert await dispatcher.run_once() == 0
    clock.pass_time(2 * SLEW)
    assert await dispatcher.run_once() == 1
    clock.step(-step)
    assert await dispatcher.run_once() == 0
    clock.pass_time(30 * SLEW)
    assert await dispatcher.run_once() == 1

    assert (await engine.read_delivery(delivery)).state is DeliveryState.DELIVERED
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1


@steps
async def test_an_attempt_is_signed_at_the_wall_clocks_time(engine: Engine, clock: WallClockSteps, step: float) -> None:
    webhook = make_webhook()
    await engine.insert_webhooks(webhook)
    await engine.insert_deliveries(
        make_delivery(webhook_id=webhook.id, due_at=clock.now(), give_up_at=clock.now() + seconds(HOUR))
    )
    receiver = RecordingReceiver()
    clock.step(step)

    await engine.make_dispatcher(receiver).run_once()

    assert receiver.requests[0].headers["webhook-timestamp"] == str(int(clock.wall_time().timestamp()))


@steps
async def test_a_lease_that_is_kept_stays_and_one_that_is_not_runs_out_in_its_time(
    engine: Engine, clock: WallClockSteps, step: float
) -> None:
    leased = await engine.lease_call(make_call(deadline_at=clock.now() + seconds(HOUR)))
    clock.step(step)

    await engine.make_janitor().run_once()
    assert (await engine.read_call(leased)).lease_token == leased.lease_token

    clock.pass_time((LEASE_SECONDS + LEASE_GRACE_SECONDS) * SLEW)
    await engine.make_janitor().run_once()
    assert (await engine.read_call(leased)).phase is CallPhase.QUEUED


@steps
async def test_a_deadline_passes_when_its_time_is_over(engine: Engine, clock: WallClockSteps, step: float) -> None:
    call = make_call(deadline_at=clock.now() + seconds(HOUR))
    await engine.insert_calls(call)
    clock.step(step)

    clock.pass_time((HOUR - 60) / SLEW)
    await engine.make_janitor().run_once()
    assert not (await engine.read_call(call)).is_final

    clock.pass_time((HOUR + OVERDUE_GRACE_SECONDS) * SLEW - (HOUR - 60) / SLEW)
    await engine.make_janitor().run_once()
    assert (await engine.read_call(call)).outcome is CallOutcome.REJECTED


@steps
async def test_a_result_is_kept_for_its_time(engine: Engine, clock: WallClockSteps, step: float) -> None:
    call = await engine.finish_call(make_call(deadline_at=clock.now() + seconds(HOUR)))
    clock.pass_time(6.5 * DAY)
    clock.step(step)
    await engine.make_janitor().run_once()
    assert await engine.read_result(call) is not None

    clock.pass_time(0.5 * DAY * SLEW)
    await engine.make_janitor().run_once()
    with pytest.raises(CallExpired):
        await engine.store.read(lambda tx: get_own_call(tx, ALICE, call.id))


@pytest.mark.parametrize("step", [-HOUR, -DAY])
async def test_a_process_that_starts_after_the_clock_was_set_back_goes_on_where_the_last_one_stood(
    tmp_path: Path, step: float
) -> None:
    """What was due in five minutes is due in five minutes, and what had four days has four days."""
    before = WallClockSteps()
    webhook = make_webhook()
    delivery = make_delivery(
        webhook_id=webhook.id, due_at=before.now() + timedelta(minutes=5), give_up_at=before.now() + timedelta(days=4)
    )
    async with open_test_store(tmp_path, before) as store:
        engine = Engine(store, before)
        await engine.insert_webhooks(webhook)
        await engine.insert_deliveries(delivery)
        await engine.make_janitor().run_once()
    after = WallClockSteps(before.wall_time() + seconds(step), elapsed_seconds=1)
    async with open_test_store(tmp_path, after) as store:
        last = await store.read(lambda tx: tx.scheduling_time.load())
        assert last is not None
        after.continue_from(last)
        engine, receiver = Engine(store, after), RecordingReceiver()
        dispatcher = engine.make_dispatcher(receiver)

        assert await dispatcher.run_once() == 0
        after.pass_time(300 * SLEW)
        assert await dispatcher.run_once() == 1

        assert (await engine.read_delivery(delivery)).state is DeliveryState.DELIVERED
        assert receiver.requests[0].headers["webhook-timestamp"] == str(int(after.wall_time().timestamp()))


async def test_scheduling_time_is_kept_once_a_minute_and_never_falls(engine: Engine, clock: WallClockSteps) -> None:
    janitor = engine.make_janitor()

    async def last_after(pass_seconds: float) -> float:
        clock.pass_time(pass_seconds)
        await janitor.run_once()
        last = await engine.store.read(lambda tx: tx.scheduling_time.load())
        assert last is not None
        return (last - began).total_seconds()

    began = clock.now()
    assert [await last_after(each) for each in (0, 59, 1, 30)] == [0, 0, 60, 60]
    await engine.store.write(lambda tx: tx.scheduling_time.save(began))
    assert await last_after(0) == 60


class FailingCommit(StoreWrapper):
    """Rolls back every unit of work after it has run, while a test says so."""

    failing = False

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        async def work_and_fail(tx: Transaction) -> T:
            done = await work(tx)
            if self.failing:
                raise StoreUnavailable("The disk is full.")
            return done

        return await super().write(work_and_fail)


async def test_scheduling_time_that_was_not_committed_is_written_again(engine: Engine, clock: WallClockSteps) -> None:
    store = FailingCommit(engine.store)
    janitor = Engine(store, clock).make_janitor()
    store.failing = True
    for _ in range(100):  # each refused round goes on with the chore after the one that failed
        with pytest.raises(StoreUnavailable):
            await janitor.run_once()
    store.failing = False

    await janitor.run_once()

    assert await engine.store.read(lambda tx: tx.scheduling_time.load()) == clock.now()


async def test_a_leased_delivery_is_not_sent_twice_because_the_clock_was_set(
    engine: Engine, clock: WallClockSteps
) -> None:
    webhook = make_webhook()
    leased = make_delivery(
        webhook_id=webhook.id,
        state=DeliveryState.LEASED,
        lease_token="lease_1",
        lease_until=clock.now() + seconds(30),
        give_up_at=clock.now() + seconds(HOUR),
    )
    await engine.insert_webhooks(webhook)
    await engine.insert_deliveries(leased)
    clock.step(DAY)

    await engine.make_janitor().run_once()

    assert await engine.read_delivery(leased) == leased
