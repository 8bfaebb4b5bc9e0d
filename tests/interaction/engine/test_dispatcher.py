"""The dispatcher: every delivery is tried until it is delivered, given up, or not wanted any more; never twice at once."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import httpx
import orjson
import pytest

from ringback.domain.clock import seconds
from ringback.domain.delivery import Category, Delivery, DeliveryState
from ringback.domain.ports import Transaction
from ringback.domain.retry import LADDERS, Profile
from ringback.domain.webhook import Webhook, WebhookSecret, WebhookState
from ringback.notifier.dispatcher import DispatcherConfig
from ringback.signing.standard_webhooks import verify
from tests.support.builders import a_call, a_delivery, a_trusted_webhook, a_webhook
from tests.support.clock import START, FakeClock
from tests.support.engine import Engine, UnsteadyStore, dispatching, until
from tests.support.examples import WEBHOOK

DAY = 86400
Answer = Callable[[httpx.Request], Coroutine[None, None, httpx.Response]]


class Mailman:
    """Takes every POST down and answers it as told: the last answer repeats."""

    def __init__(self, *answers: int | httpx.Response) -> None:
        self.posts: list[httpx.Request] = []
        self._answers = [httpx.Response(each) if isinstance(each, int) else each for each in answers]

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.posts.append(request)
        told = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return httpx.Response(told.status_code, headers=told.headers, content=told.content)


async def a_due_delivery(engine: Engine, **webhook: Any) -> Delivery:
    """The delivery of a call that has just ended, for a webhook of its own."""
    await engine.register(a_webhook(**webhook))
    await engine.finish(a_call())
    return (await engine.deliveries())[-1]


async def wait_until_due(engine: Engine, clock: FakeClock, delivery: Delivery) -> timedelta:
    """Let the time pass until the delivery is due again; how long that was."""
    due_in = (await engine.delivery(delivery)).due_at - clock.now()
    clock.advance(due_in.total_seconds())
    return due_in


# -- the ladder -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("profile", Profile)
async def test_a_receiver_that_stays_down_is_tried_along_the_ladder_and_then_given_up(
    still: Engine, fake_clock: FakeClock, profile: Profile
) -> None:
    delivery = await a_due_delivery(still, retries=profile)
    mailman = Mailman(500)
    dispatcher = still.dispatcher(mailman)
    waits: list[timedelta] = []

    while await dispatcher.run_once() and (await still.delivery(delivery)).state is DeliveryState.PENDING:
        assert await dispatcher.run_once() == 0
        waits.append(await wait_until_due(still, fake_clock, delivery))

    assert waits == [seconds(step) for step in LADDERS[profile].steps_seconds]
    given_up = await still.delivery(delivery)
    assert (given_up.state, given_up.attempts) == (DeliveryState.DEAD, len(waits) + 1)
    assert (given_up.last_category, given_up.finished_at) == (Category.HTTP_5XX, fake_clock.now())
    assert [attempt.number for attempt in await still.attempts(delivery)] == list(range(len(waits) + 1, 0, -1))
    assert len(mailman.posts) == len(waits) + 1


@pytest.mark.requirement("R27")
async def test_a_receiver_that_comes_back_gets_its_delivery(still: Engine, fake_clock: FakeClock) -> None:
    delivery = await a_due_delivery(still)
    dispatcher = still.dispatcher(Mailman(500, 503, 204))

    for _ in range(3):
        await dispatcher.run_once()
        await wait_until_due(still, fake_clock, delivery)

    assert (await still.delivery(delivery)).state is DeliveryState.DELIVERED
    told = [(each.number, each.status_code, each.category) for each in await still.attempts(delivery)]
    assert told == [(3, 204, Category.DELIVERED), (2, 503, Category.HTTP_5XX), (1, 500, Category.HTTP_5XX)]


async def test_a_delivery_is_given_up_at_its_age_however_seldom_it_was_tried(
    still: Engine, fake_clock: FakeClock
) -> None:
    delivery = await a_due_delivery(still)
    fake_clock.advance(4 * DAY + 1)

    await still.dispatcher(Mailman(500)).run_once()

    given_up = await still.delivery(delivery)
    assert (given_up.state, given_up.attempts) == (DeliveryState.DEAD, 1)


async def test_a_late_delivery_is_tried_once_more_before_it_is_given_up(still: Engine, fake_clock: FakeClock) -> None:
    delivery = await a_due_delivery(still)
    fake_clock.advance(4 * DAY + 1)

    await still.dispatcher(Mailman(204)).run_once()

    assert (await still.delivery(delivery)).state is DeliveryState.DELIVERED


# -- answers ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [410, 413])
async def test_an_answer_that_cannot_change_ends_the_delivery_at_once(still: Engine, status: int) -> None:
    delivery = await a_due_delivery(still)

    await still.dispatcher(Mailman(status)).run_once()

    ended = await still.delivery(delivery)
    assert (ended.state, ended.attempts) == (DeliveryState.DEAD, 1)


@pytest.mark.parametrize(
    ("status", "asked", "waited"),
    [
        (503, "120", 120),
        (429, "120", 120),
        (503, "1", 5),
        (503, str(30 * DAY), DAY),
        (503, "Fri, 20 Nov 2026 17:10:00 GMT", 600),
        (500, "120", 5),
        (503, "soon", 5),
    ],
)
async def test_a_receiver_may_ask_for_more_time_within_bounds(
    still: Engine, status: int, asked: str, waited: int
) -> None:
    delivery = await a_due_delivery(still)

    await still.dispatcher(Mailman(httpx.Response(status, headers={"retry-after": asked}))).run_once()

    assert (await still.delivery(delivery)).due_at == START + timedelta(seconds=waited)


async def test_a_redirect_is_a_failure_and_is_not_followed(still: Engine) -> None:
    delivery = await a_due_delivery(still)
    mailman = Mailman(httpx.Response(307, headers={"location": "https://elsewhere.example/"}))

    await still.dispatcher(mailman).run_once()

    failed = await still.delivery(delivery)
    assert (failed.state, failed.last_category) == (DeliveryState.PENDING, Category.HTTP_3XX)
    assert [request.url.host for request in mailman.posts] == ["agent.example"]


async def test_what_a_receiver_answered_is_kept_for_its_owner(still: Engine) -> None:
    delivery = await a_due_delivery(still)

    await still.dispatcher(Mailman(httpx.Response(500, content=b"out of paper"))).run_once()

    (attempt,) = await still.attempts(delivery)
    assert (attempt.excerpt, attempt.status_code, attempt.started_at) == ("out of paper", 500, START)


async def test_a_target_that_is_not_allowed_any_more_is_not_connected_to(still: Engine) -> None:
    delivery = await a_due_delivery(still, url="http://127.0.0.1:9/hook")
    mailman = Mailman(204)

    await still.dispatcher(mailman).run_once()

    refused = await still.delivery(delivery)
    assert (refused.state, refused.last_category) == (DeliveryState.PENDING, Category.CONNECTION_REFUSED)
    assert mailman.posts == []


# -- what is sent -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R23")
@pytest.mark.requirement("R27")
async def test_every_attempt_sends_the_same_bytes_under_the_same_id_with_a_fresh_signature(
    still: Engine, fake_clock: FakeClock
) -> None:
    delivery = await a_due_delivery(still)
    mailman = Mailman(500)
    dispatcher = still.dispatcher(mailman)
    sent_at: list[datetime] = []

    for _ in range(4):
        sent_at.append(fake_clock.now())
        await dispatcher.run_once()
        await wait_until_due(still, fake_clock, delivery)

    assert {request.content for request in mailman.posts} == {delivery.body}
    assert {request.headers["webhook-id"] for request in mailman.posts} == {orjson.loads(delivery.body)["eventId"]}
    assert {request.headers["x-mcp-subscription-id"] for request in mailman.posts} == {delivery.webhook_id}
    assert len({request.headers["webhook-signature"] for request in mailman.posts}) == 4
    for request, now in zip(mailman.posts, sent_at, strict=True):
        message = verify(request.headers, request.content, [WEBHOOK.secrets[0].value], now=now)
        assert message.timestamp == int(now.timestamp())


async def test_while_a_secret_is_being_replaced_both_sign(still: Engine) -> None:
    new, old, older = ("whsec_" + letter * 32 for letter in "abc")
    secrets = (
        WebhookSecret(value=new),
        WebhookSecret(value=old, ends_at=START + timedelta(seconds=1)),
        WebhookSecret(value=older, ends_at=START),
    )
    await a_due_delivery(still, secrets=secrets)
    mailman = Mailman(204)

    await still.dispatcher(mailman).run_once()

    (post,) = mailman.posts
    assert len(post.headers["webhook-signature"].split()) == 2
    for secret in (new, old):
        verify(post.headers, post.content, [secret], now=START)


# -- webhooks that change meanwhile -----------------------------------------------------------------------------------------


async def test_what_is_due_for_a_disabled_webhook_is_cancelled_and_not_sent(still: Engine) -> None:
    delivery = await a_due_delivery(still)
    webhook = await still.webhook(delivery.webhook_id)
    await still.store.write(lambda tx: tx.webhooks.update(replace(webhook, state=WebhookState.DISABLED)))
    mailman = Mailman(204)

    await still.dispatcher(mailman).run_once()

    dropped = await still.delivery(delivery)
    assert (dropped.state, dropped.finished_at, dropped.lease_token) == (DeliveryState.CANCELLED, START, None)
    assert mailman.posts == []


async def test_a_webhook_that_is_removed_during_an_attempt_leaves_the_delivery_cancelled(still: Engine) -> None:
    delivery = await a_due_delivery(still)

    async def remove(request: httpx.Request) -> httpx.Response:
        await still.store.write(lambda tx: tx.webhooks.delete(delivery.webhook_id))
        return httpx.Response(500)

    await still.dispatcher(remove).run_once()

    assert (await still.delivery(delivery)).state is DeliveryState.CANCELLED


async def test_a_url_that_was_changed_is_where_the_next_attempt_goes(still: Engine, fake_clock: FakeClock) -> None:
    delivery = await a_due_delivery(still)
    webhook = await still.webhook(delivery.webhook_id)
    mailman = Mailman(500, 204)
    dispatcher = still.dispatcher(mailman)

    await dispatcher.run_once()
    await still.store.write(lambda tx: tx.webhooks.update(replace(webhook, url="https://moved.example/")))
    await wait_until_due(still, fake_clock, delivery)
    await dispatcher.run_once()

    assert [request.url.host for request in mailman.posts] == ["agent.example", "moved.example"]


async def test_a_webhook_keeps_account_of_how_its_receiver_is_doing(still: Engine, fake_clock: FakeClock) -> None:
    delivery = await a_due_delivery(still)
    dispatcher = still.dispatcher(Mailman(500, 404, 204))

    async def account() -> tuple[str | None, datetime | None, datetime | None]:
        webhook = await still.webhook(delivery.webhook_id)
        return webhook.last_error, webhook.failing_since, webhook.last_delivery_at

    assert await account() == (None, None, None)
    await dispatcher.run_once()
    assert await account() == ("http_5xx", START, None)
    await wait_until_due(still, fake_clock, delivery)
    await dispatcher.run_once()
    assert await account() == ("http_4xx", START, None)
    await wait_until_due(still, fake_clock, delivery)
    await dispatcher.run_once()
    assert await account() == (None, None, fake_clock.now())


async def test_the_last_delivery_is_told_to_the_second(still: Engine, fake_clock: FakeClock) -> None:
    webhook = a_webhook()
    await still.register(webhook)
    dispatcher = still.dispatcher(Mailman(204))
    told: list[datetime | None] = []

    for _ in range(3):
        await still.finish(a_call())
        await dispatcher.run_once()
        told.append((await still.webhook(webhook.id)).last_delivery_at)
        fake_clock.advance(0.6)

    assert told == [START, START, START + timedelta(seconds=1.2)]


# -- leases -----------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R35")
async def test_an_attempt_that_outlived_its_lease_settles_nothing(still: Engine, fake_clock: FakeClock) -> None:
    delivery = await a_due_delivery(still)
    other = still.dispatcher(Mailman(204))

    async def stand_still(request: httpx.Request) -> httpx.Response:
        fake_clock.advance(31)
        await still.janitor().run_once()
        await other.run_once()
        return httpx.Response(500)

    await still.dispatcher(stand_still).run_once()

    settled = await still.delivery(delivery)
    assert (settled.state, settled.attempts) == (DeliveryState.DELIVERED, 2)
    assert [attempt.number for attempt in await still.attempts(delivery)] == [2]
    assert (await still.webhook(delivery.webhook_id)).last_error is None


@pytest.mark.requirement("R27")
async def test_an_attempt_that_could_not_be_written_down_is_made_again_under_the_same_id(
    still: Engine, still_unsteady: UnsteadyStore, fake_clock: FakeClock
) -> None:
    delivery = await a_due_delivery(still)
    mailman = Mailman(204)

    async def fill_the_disk(request: httpx.Request) -> httpx.Response:
        still_unsteady.refusals = 0 if mailman.posts else 1
        return await mailman(request)

    dispatcher = still.dispatcher(fill_the_disk)
    await dispatcher.run_once()
    assert (await still.delivery(delivery)).state is DeliveryState.LEASED
    assert await dispatcher.run_once() == 0

    fake_clock.advance(31)
    await still.janitor().run_once()
    await dispatcher.run_once()

    assert (await still.delivery(delivery)).state is DeliveryState.DELIVERED
    assert [request.headers["webhook-id"] for request in mailman.posts] == [delivery.message_id] * 2


def test_an_attempt_ends_within_its_lease() -> None:
    with pytest.raises(ValueError, match="lease_seconds must be at least"):
        DispatcherConfig(lease_seconds=15)


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
