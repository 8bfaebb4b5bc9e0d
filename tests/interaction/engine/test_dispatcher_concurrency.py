"""Many deliveries at once: each receiver its share, no more than the service allows, and an orderly end."""

import asyncio
import math
from datetime import timedelta
from typing import Any

import httpx
import pytest

from ringback.domain.circuit_breaker import CircuitBreaker
from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.delivery_rows import BODIES_READ_BYTES_MAX
from ringback.domain.ports import Transaction
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.webhook import Webhook
from ringback.notifier.call_ends import LeasedCompletion
from ringback.notifier.dispatcher import Dispatcher
from ringback.notifier.follow_ups import FollowUps
from ringback.notifier.leasing import LeasedBatch
from ringback.notifier.payload import BODY_BYTES_MAX
from tests.support.builders import make_call, make_delivery, make_verified_webhook, make_webhook
from tests.support.clock import START, OffsetClock
from tests.support.engine import Engine, insert_dispatched_call, running_dispatcher, wait_until
from tests.support.examples import BOB
from tests.support.scripted_receiver import ScriptedReceiver
from tests.support.stored_work import COMPLETED_RESULT
from tests.support.stores import FailingStore, StoreWithWaitingUnits

# -- many at once -----------------------------------------------------------------------------------------------------------


class BlockingReceiver:
    """Receivers that keep every POST until it is let go."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, asyncio.Future[int]]] = []
        self.at_once_max: dict[str, int] = {}

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        webhook_id = request.headers["x-mcp-subscription-id"]
        answer = asyncio.get_running_loop().create_future()
        self.waiting.append((webhook_id, answer))
        self.at_once_max[webhook_id] = max(self.at_once_max.get(webhook_id, 0), self.in_flight_max(webhook_id))
        try:
            return httpx.Response(await answer)
        finally:
            self.waiting.remove((webhook_id, answer))

    def in_flight_max(self, webhook_id: str) -> int:
        return sum(1 for each, _ in self.waiting if each == webhook_id)

    def release_one(self) -> None:
        next(answer for _, answer in self.waiting if not answer.done()).set_result(204)

    async def wait_until_waiting(self, count: int) -> None:
        async def reached() -> bool:
            return len(self.waiting) == count

        await wait_until(reached)


async def wait_for_post(crowd: BlockingReceiver) -> bool:
    return any(not answer.done() for _, answer in crowd.waiting)


def count_in_flight(dispatcher: Dispatcher) -> int:
    return dispatcher._limiter.in_flight  # pyright: ignore[reportPrivateUsage] - what is lost here is seen nowhere else


async def commit_several_times(engine: Engine) -> None:
    """Long enough for every running worker to read the store."""

    async def nothing(tx: Transaction) -> None:
        del tx

    for _ in range(3):
        await engine.store.write(nothing)


async def make_deliveries(engine: Engine, count: int, webhook: Webhook, **over: Any) -> list[Delivery]:
    now = engine.clock.now()
    await engine.insert_webhooks(webhook)
    deliveries = [
        make_delivery(
            principal=webhook.principal,
            webhook_id=webhook.id,
            seq=seq,
            due_at=now,
            give_up_at=now + timedelta(days=4),
            **over,
        )
        for seq in range(1, count + 1)
    ]
    await engine.insert_deliveries(*deliveries)
    return deliveries


async def wait_until_all_delivered(engine: Engine, *deliveries: Delivery) -> None:
    async def delivered() -> bool:
        found = [await engine.read_delivery(delivery) for delivery in deliveries]
        return all(delivery.state is DeliveryState.DELIVERED for delivery in found)

    await wait_until(delivered)


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("per_receiver_max", [1, 2, 3, 8])
async def test_one_webhook_never_has_more_attempts_in_flight_than_its_share(
    engine: Engine, per_receiver_max: int
) -> None:
    crowd, webhook = BlockingReceiver(), make_verified_webhook()
    deliveries = await make_deliveries(engine, 20, webhook)

    async with running_dispatcher(engine.make_dispatcher(crowd, per_receiver_max=per_receiver_max)):
        await crowd.wait_until_waiting(per_receiver_max)
        for _ in deliveries:
            await wait_until(lambda: wait_for_post(crowd))
            crowd.release_one()
            await commit_several_times(engine)
        await wait_until_all_delivered(engine, *deliveries)

    assert crowd.at_once_max == {webhook.id: per_receiver_max}


@pytest.mark.requirement("R27")
async def test_a_slow_receiver_leaves_room_for_the_others(engine: Engine) -> None:
    crowd, slow, quick = (
        BlockingReceiver(),
        make_verified_webhook(),
        make_verified_webhook(url="https://quick.example/"),
    )
    late = await make_deliveries(engine, 20, slow)
    punctual = await make_deliveries(engine, 20, quick)

    async def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(204) if request.url.host == "quick.example" else await crowd(request)

    async with running_dispatcher(engine.make_dispatcher(answer, per_receiver_max=4, in_flight_max=8)):
        await wait_until_all_delivered(engine, *punctual)
        assert crowd.at_once_max == {slow.id: 4}
        for _ in late:
            await wait_until(lambda: wait_for_post(crowd))
            crowd.release_one()
        await wait_until_all_delivered(engine, *late)


async def test_large_bodies_of_one_principal_are_in_flight_up_to_a_limit_and_those_of_others_beside_them(
    engine: Engine,
) -> None:
    crowd, body = BlockingReceiver(), b"x" * BODY_BYTES_MAX
    large = [
        delivery
        for number in range(40)
        for delivery in await make_deliveries(
            engine, 1, make_verified_webhook(url=f"https://{number}.example/"), body=body
        )
    ]
    small = await make_deliveries(engine, 1, make_verified_webhook(url="https://quick.example/", principal=BOB))

    async def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(204) if request.url.host == "quick.example" else await crowd(request)

    async with running_dispatcher(engine.make_dispatcher(answer, principal_body_bytes_max=2 * len(body))):
        await wait_until_all_delivered(engine, *small)
        await commit_several_times(engine)
        assert len(crowd.waiting) * len(body) <= BODIES_READ_BYTES_MAX
        for _ in large:
            await wait_until(lambda: wait_for_post(crowd))
            crowd.release_one()
        await wait_until_all_delivered(engine, *large)


async def test_the_bodies_of_one_event_for_many_webhooks_count_while_its_deliveries_are_inserted(
    engine: Engine,
) -> None:
    """The first attempts begin at the commit, all of them together."""
    crowd = BlockingReceiver()
    webhooks = [make_verified_webhook(url=f"https://{number}.example/") for number in range(6)]
    await engine.insert_webhooks(*webhooks)
    call = await insert_dispatched_call(engine, make_call())
    end = LeasedCompletion(
        call_id=call.id,
        principal=call.principal,
        lease_token=call.lease_token or "",
        completion=COMPLETED_RESULT,
        progress=None,
    )

    async with running_dispatcher(engine.make_dispatcher(crowd, principal_body_bytes_max=1)):
        await commit_several_times(engine)
        await engine.make_completion_batcher().finish_call(end)
        await wait_until(lambda: wait_for_post(crowd))
        await commit_several_times(engine)
        assert len(crowd.waiting) == 1
        for _ in webhooks:
            await wait_until(lambda: wait_for_post(crowd))
            crowd.release_one()
        await wait_until_all_delivered(engine, *await engine.read_deliveries())
        assert len(await engine.read_deliveries()) == len(webhooks)


async def test_no_more_attempts_are_in_flight_than_the_service_allows(engine: Engine) -> None:
    crowd = BlockingReceiver()
    for _ in range(5):
        await make_deliveries(engine, 2, make_webhook())

    async with running_dispatcher(engine.make_dispatcher(crowd, in_flight_max=3)) as stop:
        await crowd.wait_until_waiting(3)
        stop.set()
        for _ in range(3):
            crowd.release_one()

    delivered = [each for each in await engine.read_deliveries() if each.state is DeliveryState.DELIVERED]
    assert len(delivered) == 3


@pytest.mark.requirement("R27")
async def test_a_bug_with_one_delivery_is_no_business_of_the_others(engine: Engine) -> None:
    unlucky, lucky = make_webhook(url="https://unlucky.example/"), make_webhook()
    await make_deliveries(engine, 1, unlucky)
    deliveries = await make_deliveries(engine, 5, lucky)

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "unlucky.example":
            raise ZeroDivisionError
        return httpx.Response(204)

    async with running_dispatcher(engine.make_dispatcher(answer, per_receiver_max=1)):
        await wait_until_all_delivered(engine, *deliveries)


@pytest.mark.requirement("R35")
async def test_attempts_that_are_cancelled_before_they_begin_give_their_permits_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a bug the supervisor runs the same dispatcher again, with the permits that are left."""
    await make_deliveries(engine, 3, make_verified_webhook())
    dispatcher = engine.make_dispatcher(ScriptedReceiver(204))

    def stumble(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(FollowUps, "start_units", stumble)  # a bug
    with pytest.raises(ExceptionGroup):
        await dispatcher.run_once()

    states = {delivery.state for delivery in await engine.read_deliveries()}
    assert (states, count_in_flight(dispatcher)) == ({DeliveryState.LEASED}, 0)


@pytest.mark.requirement("R34")
async def test_a_paused_webhook_whose_row_stays_locked_delays_no_delivery_of_another_principal(engine: Engine) -> None:
    """Its unit follows the lease query. The next query came after it, so all deliveries of the node waited."""
    pause = CircuitBreaker(failures=5, openings=1, paused_until=engine.clock.now() + timedelta(hours=1))
    paused, bobs = make_verified_webhook(breaker=pause), make_verified_webhook(principal=BOB)
    await engine.insert_webhooks(paused)
    await engine.insert_deliveries(make_delivery(webhook_id=paused.id, due_at=START, give_up_at=START))
    store = engine.store = StoreWithWaitingUnits(engine.store, "give_up_expired")

    async def is_waiting() -> bool:
        return store.waiting > 0

    async with running_dispatcher(engine.make_dispatcher(ScriptedReceiver(*[204] * 10))):
        await wait_until(is_waiting)
        await wait_until_all_delivered(engine, *await make_deliveries(engine, 1, bobs))
        assert store.waiting == 1
        store.released.set()


async def test_a_delivery_that_is_committed_while_the_attempts_end_because_of_a_bug_gives_its_permit_back(
    engine: Engine,
) -> None:
    dispatcher, webhook = engine.make_dispatcher(ScriptedReceiver(204)), make_verified_webhook()
    await engine.insert_webhooks(webhook)
    async with asyncio.TaskGroup() as attempts:
        pass

    with dispatcher._accept_handoffs(attempts):  # pyright: ignore[reportPrivateUsage] - as after the bug
        await engine.finish_call(make_call())

    states = [delivery.state for delivery in await engine.read_deliveries()]
    assert (states, count_in_flight(dispatcher)) == ([DeliveryState.LEASED], 0)


# -- at work ----------------------------------------------------------------------------------------------------------------


async def test_deliveries_that_become_due_are_sent_at_once(engine: Engine) -> None:
    async with running_dispatcher(engine.make_dispatcher(ScriptedReceiver(204), poll_seconds=3600.0)):
        await engine.insert_webhooks(make_webhook())
        await engine.finish_call(make_call())
        await wait_until_all_delivered(engine, *await engine.read_deliveries())


async def test_a_dispatcher_wakes_for_the_next_attempt(engine: Engine) -> None:
    webhook, now = make_webhook(), engine.clock.now()
    await engine.insert_webhooks(webhook)
    later = make_delivery(
        webhook_id=webhook.id, due_at=now + timedelta(seconds=0.1), give_up_at=now + timedelta(days=4)
    )
    await engine.insert_deliveries(later)

    async with running_dispatcher(engine.make_dispatcher(ScriptedReceiver(204), poll_seconds=3600.0)):
        await wait_until_all_delivered(engine, later)


async def test_deliveries_that_become_due_between_two_leases_are_leased_at_once(
    engine: Engine, clock: OffsetClock
) -> None:
    clock.stop()
    webhook, now = make_webhook(), engine.clock.now()
    await engine.insert_webhooks(webhook)
    await engine.insert_deliveries(make_delivery(webhook_id=webhook.id, due_at=now, give_up_at=now + timedelta(days=4)))
    dispatcher = engine.make_dispatcher(ScriptedReceiver(204), poll_seconds=3600.0)

    look = dispatcher._seconds_until_due  # pyright: ignore[reportPrivateUsage] - the moment in between is seen nowhere else
    waits = [await look() for _ in range(3)]

    assert waits == [0.0, 3600.0, 3600.0], "claimed for once more; a delivery that no claim takes is waited for"


async def test_a_delivery_that_becomes_due_during_a_lease_is_leased_before_the_store_is_read_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_deliveries(engine, 1, make_verified_webhook())
    dispatcher, steps = engine.make_dispatcher(ScriptedReceiver(204), poll_seconds=3600.0), list[str]()
    lease, look = dispatcher._lease_due_or_nothing, dispatcher._seconds_until_due  # pyright: ignore[reportPrivateUsage] - as above

    async def notify(tx: Transaction) -> None:
        tx.notify(DELIVERY_DUE_TOPIC)

    async def lease_and_notify() -> LeasedBatch:
        steps.append("lease")
        if steps == ["lease"]:
            await engine.store.write(notify)
        return await lease()

    async def note_look() -> float:
        steps.append("read")
        return await look()

    monkeypatch.setattr(dispatcher, "_lease_due_or_nothing", lease_and_notify)
    monkeypatch.setattr(dispatcher, "_seconds_until_due", note_look)

    async def has_leased_twice() -> bool:
        return len(steps) >= 2

    async with running_dispatcher(dispatcher):
        await wait_until(has_leased_twice)

    assert steps[:2] == ["lease", "lease"]


async def test_a_lease_that_finds_nothing_says_when_the_next_delivery_is_due(
    engine: Engine, clock: OffsetClock
) -> None:
    clock.stop()
    webhook, now = make_webhook(), engine.clock.now()
    await engine.insert_webhooks(webhook)
    dispatcher = engine.make_dispatcher(ScriptedReceiver(204))
    lease = dispatcher._leasing.lease_due  # pyright: ignore[reportPrivateUsage] - a wake-up shows it too late

    assert (await lease()).idle_seconds == math.inf
    for seconds in (30, 0):
        due_at = now + timedelta(seconds=seconds)
        await engine.insert_deliveries(
            make_delivery(webhook_id=webhook.id, due_at=due_at, give_up_at=now + timedelta(days=4))
        )
    leased = await lease()
    assert (len(leased.deliveries), leased.idle_seconds) == (1, None), "its deliveries do not wait for the answer"
    assert (await lease()).idle_seconds == 30


async def test_a_store_that_cannot_be_written_for_a_while_delays_and_loses_nothing(
    engine: Engine, unsteady: FailingStore
) -> None:
    deliveries = await make_deliveries(engine, 3, make_verified_webhook())
    unsteady.refusals = 3

    async with running_dispatcher(engine.make_dispatcher(ScriptedReceiver(204), poll_seconds=0.01)):
        await wait_until_all_delivered(engine, *deliveries)


async def test_a_stopped_dispatcher_lets_the_attempts_in_flight_end(engine: Engine) -> None:
    crowd = BlockingReceiver()
    deliveries = await make_deliveries(engine, 3, make_verified_webhook())

    async with running_dispatcher(engine.make_dispatcher(crowd)) as stop:
        await crowd.wait_until_waiting(3)
        stop.set()
        for _ in deliveries:
            crowd.release_one()

    assert {(await engine.read_delivery(each)).state for each in deliveries} == {DeliveryState.DELIVERED}
