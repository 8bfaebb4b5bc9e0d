"""Many deliveries at once: each receiver its share, no more than the service allows, and an orderly end."""

import asyncio
from datetime import timedelta

import httpx
import pytest

from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.ports import Transaction
from ringback.domain.webhook import Webhook
from tests.support.builders import a_call, a_delivery, a_trusted_webhook, a_webhook
from tests.support.clock import ShiftedClock
from tests.support.engine import Engine, dispatching, until
from tests.support.mailman import Mailman
from tests.support.stores import UnsteadyStore

# -- many at once -----------------------------------------------------------------------------------------------------------


class Crowd:
    """Receivers that keep every POST until it is let go."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, asyncio.Future[int]]] = []
        self.at_once_max: dict[str, int] = {}

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        webhook_id = request.headers["x-mcp-subscription-id"]
        answer = asyncio.get_running_loop().create_future()
        self.waiting.append((webhook_id, answer))
        self.at_once_max[webhook_id] = max(self.at_once_max.get(webhook_id, 0), self.at_once(webhook_id))
        try:
            return httpx.Response(await answer)
        finally:
            self.waiting.remove((webhook_id, answer))

    def at_once(self, webhook_id: str) -> int:
        return sum(1 for each, _ in self.waiting if each == webhook_id)

    def let_one_go(self) -> None:
        next(answer for _, answer in self.waiting if not answer.done()).set_result(204)

    async def until_waiting(self, count: int) -> None:
        async def reached() -> bool:
            return len(self.waiting) == count

        await until(reached)


async def somebody_waits(crowd: Crowd) -> bool:
    return any(not answer.done() for _, answer in crowd.waiting)


async def some_commits(engine: Engine) -> None:
    """Long enough for whoever is awake to look at the store."""

    async def nothing(tx: Transaction) -> None:
        del tx

    for _ in range(3):
        await engine.store.write(nothing)


async def some_deliveries(engine: Engine, count: int, webhook: Webhook) -> list[Delivery]:
    now = engine.clock.now()
    await engine.register(webhook)
    deliveries = [
        a_delivery(webhook_id=webhook.id, seq=seq, due_at=now, give_up_at=now + timedelta(days=4))
        for seq in range(1, count + 1)
    ]
    await engine.deliver(*deliveries)
    return deliveries


async def all_delivered(engine: Engine, *deliveries: Delivery) -> None:
    async def delivered() -> bool:
        found = [await engine.delivery(delivery) for delivery in deliveries]
        return all(delivery.state is DeliveryState.DELIVERED for delivery in found)

    await until(delivered)


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("per_receiver_max", [1, 2, 3, 8])
async def test_one_webhook_never_has_more_attempts_in_flight_than_its_share(
    engine: Engine, per_receiver_max: int
) -> None:
    crowd, webhook = Crowd(), a_trusted_webhook()
    deliveries = await some_deliveries(engine, 20, webhook)

    async with dispatching(engine.dispatcher(crowd, per_receiver_max=per_receiver_max)):
        await crowd.until_waiting(per_receiver_max)
        for _ in deliveries:
            await until(lambda: somebody_waits(crowd))
            crowd.let_one_go()
            await some_commits(engine)
        await all_delivered(engine, *deliveries)

    assert crowd.at_once_max == {webhook.id: per_receiver_max}


@pytest.mark.requirement("R27")
async def test_a_slow_receiver_leaves_room_for_the_others(engine: Engine) -> None:
    crowd, slow, quick = Crowd(), a_trusted_webhook(), a_trusted_webhook(url="https://quick.example/")
    late = await some_deliveries(engine, 20, slow)
    punctual = await some_deliveries(engine, 20, quick)

    async def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(204) if request.url.host == "quick.example" else await crowd(request)

    async with dispatching(engine.dispatcher(answer, per_receiver_max=4, in_flight_max=8)):
        await all_delivered(engine, *punctual)
        assert crowd.at_once_max == {slow.id: 4}
        for _ in late:
            await until(lambda: somebody_waits(crowd))
            crowd.let_one_go()
        await all_delivered(engine, *late)


async def test_no_more_attempts_are_in_flight_than_the_service_allows(engine: Engine) -> None:
    crowd = Crowd()
    for _ in range(5):
        await some_deliveries(engine, 2, a_webhook())

    async with dispatching(engine.dispatcher(crowd, in_flight_max=3)) as stop:
        await crowd.until_waiting(3)
        stop.set()
        for _ in range(3):
            crowd.let_one_go()

    delivered = [each for each in await engine.deliveries() if each.state is DeliveryState.DELIVERED]
    assert len(delivered) == 3


@pytest.mark.requirement("R27")
async def test_a_bug_with_one_delivery_is_no_business_of_the_others(engine: Engine) -> None:
    unlucky, lucky = a_webhook(url="https://unlucky.example/"), a_webhook()
    await some_deliveries(engine, 1, unlucky)
    deliveries = await some_deliveries(engine, 5, lucky)

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "unlucky.example":
            raise ZeroDivisionError
        return httpx.Response(204)

    async with dispatching(engine.dispatcher(answer, per_receiver_max=1)):
        await all_delivered(engine, *deliveries)


# -- at work ----------------------------------------------------------------------------------------------------------------


async def test_what_becomes_due_goes_at_once(engine: Engine) -> None:
    async with dispatching(engine.dispatcher(Mailman(204), poll_seconds=3600.0)):
        await engine.register(a_webhook())
        await engine.finish(a_call())
        await all_delivered(engine, *await engine.deliveries())


async def test_a_dispatcher_wakes_for_the_next_attempt(engine: Engine) -> None:
    webhook, now = a_webhook(), engine.clock.now()
    await engine.register(webhook)
    later = a_delivery(webhook_id=webhook.id, due_at=now + timedelta(seconds=0.1), give_up_at=now + timedelta(days=4))
    await engine.deliver(later)

    async with dispatching(engine.dispatcher(Mailman(204), poll_seconds=3600.0)):
        await all_delivered(engine, later)


async def test_what_becomes_due_between_a_claim_and_the_look_for_the_next_one_is_claimed_at_once(
    engine: Engine, clock: ShiftedClock
) -> None:
    clock.stop()
    webhook, now = a_webhook(), engine.clock.now()
    await engine.register(webhook)
    await engine.deliver(a_delivery(webhook_id=webhook.id, due_at=now, give_up_at=now + timedelta(days=4)))
    dispatcher = engine.dispatcher(Mailman(204), poll_seconds=3600.0)

    look = dispatcher._seconds_until_due  # pyright: ignore[reportPrivateUsage] - the moment in between is seen nowhere else
    waits = [await look() for _ in range(3)]

    assert waits == [0.0, 3600.0, 3600.0], "claimed for once more; a delivery that no claim takes is waited for"


async def test_a_store_that_cannot_be_written_for_a_while_delays_and_loses_nothing(
    engine: Engine, unsteady: UnsteadyStore
) -> None:
    deliveries = await some_deliveries(engine, 3, a_trusted_webhook())
    unsteady.refusals = 3

    async with dispatching(engine.dispatcher(Mailman(204), poll_seconds=0.01)):
        await all_delivered(engine, *deliveries)


async def test_a_stopped_dispatcher_lets_the_attempts_in_flight_end(engine: Engine) -> None:
    crowd = Crowd()
    deliveries = await some_deliveries(engine, 3, a_trusted_webhook())

    async with dispatching(engine.dispatcher(crowd)) as stop:
        await crowd.until_waiting(3)
        stop.set()
        for _ in deliveries:
            crowd.let_one_go()

    assert {(await engine.delivery(each)).state for each in deliveries} == {DeliveryState.DELIVERED}
