"""An attempt counts only under the lease it was made with, and one that was not written down is made again."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path

import httpx
import pytest

from ringback.admission import AdmissionGate
from ringback.domain.delivery import DeliveryState
from ringback.domain.errors import RowsLocked, StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.notifier.dispatcher import DispatcherConfig
from ringback.storage.postgres import driver
from tests.support.builders import make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import Engine, running_dispatcher, wait_until
from tests.support.examples import ALICE, BOB
from tests.support.limits import WAIT_SECONDS
from tests.support.scripted_receiver import ScriptedReceiver, make_due_delivery
from tests.support.stores import FailingStore, open_test_store


@pytest.mark.requirement("R35")
async def test_an_attempt_that_outlived_its_lease_settles_nothing(still: Engine, fake_clock: FakeClock) -> None:
    delivery = await make_due_delivery(still)
    other = still.make_dispatcher(ScriptedReceiver(204))

    async def stand_still(request: httpx.Request) -> httpx.Response:
        fake_clock.advance(31)
        await still.make_janitor().run_once()
        await other.run_once()
        return httpx.Response(500)

    await still.make_dispatcher(stand_still).run_once()

    settled = await still.read_delivery(delivery)
    assert (settled.state, settled.attempts) == (DeliveryState.DELIVERED, 2)
    assert [attempt.number for attempt in await still.read_attempts(delivery)] == [2]
    assert (await still.read_webhook(delivery.webhook_id)).last_error is None


@pytest.mark.requirement("R27")
async def test_an_attempt_that_could_not_be_written_down_is_made_again_under_the_same_id(
    still: Engine, still_unsteady: FailingStore, fake_clock: FakeClock
) -> None:
    delivery = await make_due_delivery(still)
    mailman = ScriptedReceiver(204)

    async def fill_the_disk(request: httpx.Request) -> httpx.Response:
        still_unsteady.refusals = 0 if mailman.posts else 1
        return await mailman(request)

    dispatcher = still.make_dispatcher(fill_the_disk)
    await dispatcher.run_once()
    assert (await still.read_delivery(delivery)).state is DeliveryState.LEASED
    assert await dispatcher.run_once() == 0

    fake_clock.advance(31)
    await still.make_janitor().run_once()
    await dispatcher.run_once()

    assert (await still.read_delivery(delivery)).state is DeliveryState.DELIVERED
    assert [request.headers["webhook-id"] for request in mailman.posts] == [delivery.message_id] * 2


def conflict_in_each_run(detail: str) -> RowsLocked:
    """Six deadlocks in a row: some tenths of a second, where a locked row takes ten seconds."""
    return RowsLocked(detail, waited_seconds=0.5)


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("error", [StoreUnavailable, conflict_in_each_run])
async def test_an_attempt_that_the_store_refused_is_written_down_within_its_lease_and_not_made_again(
    engine: Engine, unsteady: FailingStore, error: Callable[[str], StoreUnavailable]
) -> None:
    """A failover of some seconds had each callback in flight sent twice, a minute later."""
    unsteady.error = error
    delivery = await make_due_delivery(engine)
    mailman = ScriptedReceiver(204)

    async def fill_the_disk(request: httpx.Request) -> httpx.Response:
        unsteady.refusals = 3
        return await mailman(request)

    async def is_delivered() -> bool:
        return (await engine.read_delivery(delivery)).state is DeliveryState.DELIVERED

    async with running_dispatcher(engine.make_dispatcher(fill_the_disk, poll_seconds=0.01)):
        await wait_until(is_delivered)

    assert len(mailman.posts) == 1
    assert [attempt.number for attempt in await engine.read_attempts(delivery)] == [1]


async def test_an_attempt_that_was_held_until_it_might_outlast_its_lease_is_left_to_the_next_one(
    still: Engine, fake_clock: FakeClock
) -> None:
    delivery, mailman, gate = await make_due_delivery(still), ScriptedReceiver(204), AdmissionGate(interval_seconds=1e9)
    dispatcher, own_context = still.make_dispatcher(mailman, admission=gate), copy_context()
    with gate.admit_call():
        held = asyncio.create_task(dispatcher.run_once(), context=own_context)
        async with asyncio.timeout(WAIT_SECONDS):
            while (await still.read_delivery(delivery)).state is not DeliveryState.LEASED:  # noqa: ASYNC110 - nothing rings
                await asyncio.sleep(0)
        fake_clock.advance(21)

    await held
    assert mailman.posts == []

    fake_clock.advance(10)
    await still.make_janitor().run_once()
    await dispatcher.run_once()
    assert (await still.read_delivery(delivery)).state is DeliveryState.DELIVERED
    assert len(mailman.posts) == 1


def test_an_attempt_ends_within_its_lease() -> None:
    with pytest.raises(ValueError, match="lease_seconds must be at least"):
        DispatcherConfig(owner="dispatcher-1", lease_seconds=15)


@pytest.mark.postgres_only
async def test_a_webhook_whose_row_stays_locked_costs_no_attempt_of_another_principal(
    tmp_path: Path, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts are recorded together: those to all other webhooks were made again, too."""
    monkeypatch.setitem(driver.SERVER_SETTINGS, "lock_timeout", "50ms")
    locked, go_on, both_asked = asyncio.Event(), asyncio.Event(), asyncio.Barrier(2)
    async with open_test_store(tmp_path / "impatient", fake_clock) as store:
        engine = Engine(store, fake_clock)
        alices, bobs = make_webhook(), make_webhook(principal=BOB, url="https://bob.example/callback")
        await engine.insert_webhooks(alices, bobs)
        (delivery,) = await engine.insert_due_deliveries(bobs, 1)
        await engine.insert_due_deliveries(alices, 1)

        async def hold(tx: Transaction) -> None:
            await tx.webhooks.get(alices.id)
            locked.set()
            while not go_on.is_set():
                await tx.pause()

        async def answer(_: httpx.Request) -> httpx.Response:
            await both_asked.wait()
            return httpx.Response(204)

        dispatcher = engine.make_dispatcher(answer)
        holding = asyncio.create_task(store.write_for(ALICE, hold))
        await locked.wait()
        await dispatcher.run_once()
        go_on.set()
        await holding

        assert (await engine.read_delivery(delivery)).state is DeliveryState.DELIVERED
        assert {each.state for each in await engine.read_deliveries(ALICE)} == {DeliveryState.LEASED}
