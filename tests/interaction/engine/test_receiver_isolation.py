"""Receivers that hang do not slow the others. The tests count; the benchmarks measure times."""

from collections import Counter
from typing import Any

import httpx
import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.event import EventName
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, WebhookState
from ringback.notifier.concurrency_limiter import ConcurrencyLimits
from ringback.notifier.recorder import Recorder
from tests.support.builders import make_call, make_verified_webhook, make_webhook
from tests.support.engine import Engine, running_dispatcher, wait_until
from tests.support.receivers_by_host import ReceiversByHost

QUICK = "quick.example"


async def wait_until_delivered(engine: Engine, *deliveries: Delivery) -> None:
    async def delivered() -> bool:
        return all([(await engine.read_delivery(each)).state is DeliveryState.DELIVERED for each in deliveries])

    await wait_until(delivered)


@pytest.mark.requirement("R27")
async def test_receivers_that_hang_hold_one_attempt_each_and_the_others_are_served(
    engine: Engine, *, deep: bool
) -> None:
    hung, pending = (1000, 20) if deep else (60, 20)
    board = ReceiversByHost()
    for number in range(hung):
        board.hold_responses(f"hung-{number}.example")
        webhook = make_webhook(url=f"https://hung-{number}.example/")
        await engine.insert_webhooks(webhook)
        await engine.insert_due_deliveries(webhook, pending)
    quick = make_webhook(url=f"https://{QUICK}/")
    await engine.insert_webhooks(quick)

    async with running_dispatcher(engine.make_dispatcher(board, in_flight_max=2 * hung)):
        await board.wait_for_posts(hung)
        await wait_until_delivered(engine, *await engine.insert_due_deliveries(quick, 20))
        for _ in range(20):
            await engine.finish_call(make_call())
        await board.wait_for_posts(hung + 40)

        assert max(board.in_flight_max[f"hung-{number}.example"] for number in range(hung)) == 1
        for number in range(hung):
            board.release_responses(f"hung-{number}.example")


@pytest.mark.requirement("R27")
async def test_a_dead_origin_with_a_long_backlog_delays_no_other_receiver(engine: Engine, *, deep: bool) -> None:
    board = ReceiversByHost()
    board.set_response("dead.example", 500)
    dead = make_verified_webhook(url="https://dead.example/")
    await engine.insert_webhooks(dead)
    await engine.insert_due_deliveries(dead, 10_000 if deep else 600)
    quick = make_webhook(url=f"https://{QUICK}/")
    await engine.insert_webhooks(quick)

    async with running_dispatcher(engine.make_dispatcher(board)):
        await wait_until_delivered(engine, *await engine.insert_due_deliveries(quick, 50))

    assert sum(1 for post in board.posts if post.url.host == "dead.example") <= ConcurrencyLimits().per_receiver_max


@pytest.mark.requirement("R27")
async def test_a_principal_has_its_share_of_an_origin_and_all_together_have_theirs(engine: Engine) -> None:
    board = ReceiversByHost()
    board.hold_responses("agent.example")
    webhooks = [
        make_verified_webhook(principal=Principal(f"tenant-{tenant}"), url=f"https://agent.example/{path}")
        for tenant in range(4)
        for path in range(3)
    ]
    await engine.insert_webhooks(*webhooks)
    deliveries = [each for webhook in webhooks for each in await engine.insert_due_deliveries(webhook, 10)]

    limits: dict[str, Any] = {"per_receiver_max": 5, "per_origin_max": 12}
    async with running_dispatcher(engine.make_dispatcher(board, **limits)):
        await board.wait_for_posts(12)
        by_tenant = [
            webhook.principal for post in board.posts for webhook in webhooks if webhook.id == request_host(post)
        ]
        assert max(by_tenant.count(webhook.principal) for webhook in webhooks) == 5
        board.release_responses("agent.example")
        await wait_until_delivered(engine, *deliveries)

    assert board.in_flight_max["agent.example"] == 12


async def test_leases_are_spread_over_webhooks_when_permits_are_scarce(still: Engine) -> None:
    board = ReceiversByHost()
    webhooks = [make_verified_webhook(url=f"https://agent-{number}.example/") for number in range(4)]
    await still.insert_webhooks(*webhooks)
    for webhook in webhooks:
        await still.insert_due_deliveries(webhook, 10)

    assert await still.make_dispatcher(board, in_flight_max=8).run_once() == 8

    assert Counter(post.url.host for post in board.posts) == {f"agent-{number}.example": 2 for number in range(4)}


# -- bugs -------------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R27")
async def test_a_sender_that_raises_anything_counts_as_a_failed_attempt(still: Engine) -> None:
    """It is no failure of the receiver, so nothing is suspended for it. The retry steps and the webhook's breaker space it."""
    webhook = make_webhook()
    await still.insert_webhooks(webhook)
    (delivery,) = await still.insert_due_deliveries(webhook, 1)

    async def broken(request: httpx.Request) -> httpx.Response:
        del request
        raise ZeroDivisionError

    dispatcher = still.make_dispatcher(broken)
    await dispatcher.run_once()

    failed = await still.read_delivery(delivery)
    assert (failed.state, failed.attempts) == (DeliveryState.PENDING, 1)
    assert failed.due_at > still.clock.now()
    assert [attempt.category for attempt in await still.read_attempts(delivery)] == [AttemptCategory.INTERNAL_ERROR]
    after = await still.read_webhook(webhook.id)
    assert (after.last_error, after.failing_since, after.breaker.failures) == ("internal_error", None, 1)
    assert await dispatcher.run_once() == 0


class RecorderWithoutServiceEvents(Recorder):
    """Raises for one webhook: stands for any bug that affects one delivery and no other."""

    async def record_webhook_event(self, tx: Transaction, name: EventName, webhook: Webhook) -> None:
        del tx, name, webhook
        raise ZeroDivisionError


async def test_a_delivery_that_cannot_be_recorded_does_not_affect_the_others(still: Engine) -> None:
    unlucky = make_webhook(state=WebhookState.SUSPENDED)
    lucky = make_verified_webhook(url=f"https://{QUICK}/")
    await still.insert_webhooks(unlucky, lucky)
    (bad,) = await still.insert_due_deliveries(unlucky, 1)
    good = await still.insert_due_deliveries(lucky, 5)
    still.recorder = still.make_recorder(RecorderWithoutServiceEvents)

    await still.make_dispatcher(ReceiversByHost()).run_once()

    assert {(await still.read_delivery(each)).state for each in good} == {DeliveryState.DELIVERED}
    assert (await still.read_delivery(bad)).state is DeliveryState.LEASED


def request_host(post: httpx.Request) -> str:
    return post.headers["x-mcp-subscription-id"]
