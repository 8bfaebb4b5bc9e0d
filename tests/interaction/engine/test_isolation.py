"""Receivers that hang, and what they may not do to the others. Counts, no clocks: the benchmarks tell how long it takes."""

from collections import Counter
from datetime import timedelta
from typing import Any

import httpx
import pytest

from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.event import EventName
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, WebhookState
from ringback.notifier.body import PayloadBuilder
from ringback.notifier.lanes import ConcurrencyLimits
from ringback.notifier.record import Recorder
from tests.support.builders import a_call, a_delivery, a_trusted_webhook, a_webhook
from tests.support.engine import PUBLIC_URL, RETENTION, Engine, dispatching, until
from tests.support.switchboard import Switchboard

QUICK = "quick.example"


async def due(engine: Engine, webhook: Webhook, count: int) -> list[Delivery]:
    now = engine.clock.now()
    deliveries = [
        a_delivery(
            principal=webhook.principal,
            webhook_id=webhook.id,
            seq=seq,
            due_at=now,
            give_up_at=now + timedelta(days=4),
        )
        for seq in range(1, count + 1)
    ]
    await engine.deliver(*deliveries)
    return deliveries


async def until_delivered(engine: Engine, *deliveries: Delivery) -> None:
    async def delivered() -> bool:
        return all([(await engine.delivery(each)).state is DeliveryState.DELIVERED for each in deliveries])

    await until(delivered)


@pytest.mark.requirement("R27")
async def test_receivers_that_hang_hold_one_attempt_each_and_the_others_are_served(
    engine: Engine, *, deep: bool
) -> None:
    hung, pending = (1000, 20) if deep else (60, 20)
    board = Switchboard()
    for number in range(hung):
        board.hangs(f"hung-{number}.example")
        webhook = a_webhook(url=f"https://hung-{number}.example/")
        await engine.register(webhook)
        await due(engine, webhook, pending)
    quick = a_webhook(url=f"https://{QUICK}/")
    await engine.register(quick)

    async with dispatching(engine.dispatcher(board, in_flight_max=2 * hung)):
        await board.until_posts(hung)
        await until_delivered(engine, *await due(engine, quick, 20))
        for _ in range(20):
            await engine.finish(a_call())
        await board.until_posts(hung + 40)

        assert max(board.in_flight_max[f"hung-{number}.example"] for number in range(hung)) == 1
        for number in range(hung):
            board.lets_go(f"hung-{number}.example")


@pytest.mark.requirement("R27")
async def test_one_dead_origin_with_a_long_backlog_holds_up_nobody(engine: Engine, *, deep: bool) -> None:
    board = Switchboard()
    board.says("dead.example", 500)
    dead = a_trusted_webhook(url="https://dead.example/")
    await engine.register(dead)
    await due(engine, dead, 10_000 if deep else 600)
    quick = a_webhook(url=f"https://{QUICK}/")
    await engine.register(quick)

    async with dispatching(engine.dispatcher(board)):
        await until_delivered(engine, *await due(engine, quick, 50))

    assert sum(1 for post in board.posts if post.url.host == "dead.example") <= ConcurrencyLimits().per_receiver_max


@pytest.mark.requirement("R27")
async def test_a_principal_has_its_share_of_an_origin_and_all_together_have_theirs(engine: Engine) -> None:
    board = Switchboard()
    board.hangs("agent.example")
    webhooks = [
        a_trusted_webhook(principal=Principal(f"tenant-{tenant}"), url=f"https://agent.example/{path}")
        for tenant in range(4)
        for path in range(3)
    ]
    await engine.register(*webhooks)
    deliveries = [each for webhook in webhooks for each in await due(engine, webhook, 10)]

    limits: dict[str, Any] = {"per_receiver_max": 5, "per_origin_max": 12}
    async with dispatching(engine.dispatcher(board, **limits)):
        await board.until_posts(12)
        by_tenant = [webhook.principal for post in board.posts for webhook in webhooks if webhook.id == _to(post)]
        assert max(by_tenant.count(webhook.principal) for webhook in webhooks) == 5
        board.lets_go("agent.example")
        await until_delivered(engine, *deliveries)

    assert board.in_flight_max["agent.example"] == 12


async def test_when_slots_are_scarce_claims_are_spread_over_webhooks(still: Engine) -> None:
    board = Switchboard()
    webhooks = [a_trusted_webhook(url=f"https://agent-{number}.example/") for number in range(4)]
    await still.register(*webhooks)
    for webhook in webhooks:
        await due(still, webhook, 10)

    assert await still.dispatcher(board, in_flight_max=8).run_once() == 8

    assert Counter(post.url.host for post in board.posts) == {f"agent-{number}.example": 2 for number in range(4)}


# -- bugs -------------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R27")
async def test_a_sender_that_raises_anything_counts_as_a_failed_attempt(still: Engine) -> None:
    webhook = a_webhook()
    await still.register(webhook)
    (delivery,) = await due(still, webhook, 1)

    async def broken(request: httpx.Request) -> httpx.Response:
        del request
        raise ZeroDivisionError

    await still.dispatcher(broken).run_once()

    failed = await still.delivery(delivery)
    assert (failed.state, failed.attempts) == (DeliveryState.PENDING, 1)
    assert len(await still.attempts(delivery)) == 1
    assert (await still.webhook(webhook.id)).failing_since == still.clock.now()


class Tongueless(Recorder):
    """Cannot tell of webhooks: stands for any bug that one delivery meets and its neighbours do not."""

    async def tell(self, tx: Transaction, name: EventName, webhook: Webhook) -> None:
        del tx, name, webhook
        raise ZeroDivisionError


async def test_one_delivery_that_cannot_be_settled_costs_its_neighbours_nothing(still: Engine) -> None:
    unlucky = a_webhook(state=WebhookState.SUSPENDED)
    lucky = a_trusted_webhook(url=f"https://{QUICK}/")
    await still.register(unlucky, lucky)
    (bad,) = await due(still, unlucky, 1)
    good = await due(still, lucky, 5)
    bodies = PayloadBuilder(tokens=still.tokens, public_url=PUBLIC_URL)
    still.recorder = Tongueless(ids=still.ids, payloads=bodies, result_retention_seconds=RETENTION.result_seconds)

    await still.dispatcher(Switchboard()).run_once()

    assert {(await still.delivery(each)).state for each in good} == {DeliveryState.DELIVERED}
    assert (await still.delivery(bad)).state is DeliveryState.LEASED


def _to(post: httpx.Request) -> str:
    return post.headers["x-mcp-subscription-id"]
