"""Deliveries to MCP subscriptions: the end of a subscription, its retries, its suspension, and the ids of its messages."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ringback.domain.circuit_breaker import CircuitBreaker
from ringback.domain.delivery import SUSPENDED_HOLD_SECONDS_MAX, DeliveryKind, DeliveryState
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.retry import HOUR, RetryProfile
from ringback.domain.webhook import MessageIds, Webhook, WebhookState, with_state
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.requested_deliveries import RequestedDeliveries
from ringback.receiver import verify
from tests.support.builders import make_call, make_webhook
from tests.support.clock import START, FakeClock
from tests.support.engine import Engine
from tests.support.receivers_by_host import CONNECTION_REFUSED, ReceiversByHost

AGENT = "agent.example"
FORBIDDEN: dict[str, Any] = {"code": -32012, "message": "Forbidden: the key was revoked", "data": {}}


def make_subscription(**over: Any) -> Webhook:
    """A subscription that is older than the grace after its subscribe response."""
    known = {
        "id": WebhookId("sub_" + "a" * 32),
        "retries": RetryProfile.MINUTES,
        "created_at": START - timedelta(hours=1),
    }
    return make_webhook(**(known | over))


async def end_subscription(engine: Engine, webhook: Webhook) -> None:
    await engine.store.write(lambda tx: engine.recorder.enqueue_terminated(tx, webhook, FORBIDDEN))


# -- the end of a subscription ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [WebhookState.ACTIVE, WebhookState.SUSPENDED])
async def test_the_receiver_of_an_ended_subscription_gets_a_signed_terminated_envelope(
    still: Engine, fake_clock: FakeClock, state: WebhookState
) -> None:
    board, subscription = ReceiversByHost(204), make_subscription(state=state)
    await still.insert_webhooks(subscription)

    await end_subscription(still, subscription)
    await still.make_dispatcher(board).run_once()

    (post,) = board.posts
    assert board.bodies() == [{"type": "terminated", "error": FORBIDDEN}]
    assert post.headers["x-mcp-subscription-id"] == subscription.id
    message = verify(dict(post.headers), post.content, subscription.secrets[0].value, now=fake_clock.now())
    assert message.message_id.startswith("msg_terminated_")


async def test_an_ended_subscription_gets_no_events_and_its_row_goes_when_the_envelope_was_sent(still: Engine) -> None:
    board, subscription = ReceiversByHost(204), make_subscription()
    await still.insert_webhooks(subscription)
    await end_subscription(still, subscription)

    await still.finish_call(make_call())
    await still.make_janitor().run_once()
    assert await still.read_webhook(subscription.id), "it has the URL and the secrets of the envelope"
    await still.make_dispatcher(board).run_once()
    await still.make_janitor().run_once()

    assert [body["type"] for body in board.bodies()] == ["terminated"]
    assert await still.store.read(lambda tx: tx.webhooks.get(subscription.id)) is None


@pytest.mark.parametrize("state", [WebhookState.PENDING_VERIFICATION, WebhookState.DISABLED])
async def test_nothing_is_sent_at_the_end_to_a_url_that_was_not_verified_or_is_disabled(
    still: Engine, state: WebhookState
) -> None:
    subscription = make_subscription(state=state)
    await still.insert_webhooks(subscription)

    await end_subscription(still, subscription)

    assert await still.read_deliveries() == []


@pytest.mark.parametrize("answer", [500, CONNECTION_REFUSED])
async def test_a_terminated_envelope_that_fails_is_retried_within_bounds_and_counts_against_nobody(
    still: Engine, fake_clock: FakeClock, answer: Any
) -> None:
    board, subscription = ReceiversByHost(answer), make_subscription()
    await still.insert_webhooks(subscription)
    await end_subscription(still, subscription)
    ended = await still.read_webhook(subscription.id)

    dispatcher = still.make_dispatcher(board)
    for _ in range(10):
        await dispatcher.run_once()
        fake_clock.advance(600)

    (delivery,) = await still.read_deliveries()
    assert (delivery.kind, delivery.state, delivery.attempts) == (DeliveryKind.TERMINATED, DeliveryState.DEAD, 5)
    assert {post.headers["webhook-id"] for post in board.posts} <= {delivery.message_id}
    assert len({post.content for post in board.posts}) <= 1
    assert await still.read_webhook(subscription.id) == ended
    origin = f"https://{AGENT}"
    assert await still.store.read(lambda tx: tx.origin_breakers.get_breakers([origin, f"{origin}:443"])) == {}


# -- retries ----------------------------------------------------------------------------------------------------------------


async def test_an_event_is_retried_after_seconds_within_bounds_with_equal_bodies_and_fresh_signatures(
    still: Engine, fake_clock: FakeClock
) -> None:
    board = ReceiversByHost(503)
    await still.insert_webhooks(make_subscription())
    await still.finish_call(make_call())
    dispatcher = still.make_dispatcher(board)

    await dispatcher.run_once()
    (delivery,) = await still.read_deliveries()
    assert timedelta(seconds=1) <= delivery.due_at - fake_clock.now() <= timedelta(seconds=5)
    while (delivery := (await still.read_deliveries())[0]).state is not DeliveryState.DEAD:
        fake_clock.advance(max(1.0, (delivery.due_at - fake_clock.now()).total_seconds()))
        await dispatcher.run_once()

    assert len(board.posts) == 5
    assert len({post.content for post in board.posts}) == 1
    assert {post.headers["webhook-id"] for post in board.posts} == {delivery.event_id}
    assert len({post.headers["webhook-timestamp"] for post in board.posts}) == 5
    assert len({post.headers["webhook-signature"] for post in board.posts}) == 5


@pytest.mark.parametrize("refusal", [410, 413])
async def test_410_and_413_end_the_delivery_and_keep_the_subscription(still: Engine, refusal: int) -> None:
    board, subscription = ReceiversByHost(refusal), make_subscription()
    await still.insert_webhooks(subscription)
    await still.finish_call(make_call())
    await still.make_dispatcher(board).run_once()

    (delivery,) = await still.read_deliveries()
    assert (delivery.state, delivery.attempts) == (DeliveryState.DEAD, 1)
    assert (await still.read_webhook(subscription.id)).state is WebhookState.ACTIVE


# -- suspension -------------------------------------------------------------------------------------------------------------


async def test_time_in_suspension_does_not_count_against_the_retry_window(still: Engine, fake_clock: FakeClock) -> None:
    board, subscription = ReceiversByHost(500), make_subscription()
    await still.insert_webhooks(subscription)
    await still.finish_call(make_call())
    dispatcher = still.make_dispatcher(board)
    await dispatcher.run_once()
    (before,) = await still.read_deliveries()
    fake_clock.advance(600)
    await _suspend(still, subscription, pause=timedelta(seconds=600 + SUSPENDED_HOLD_SECONDS_MAX - HOUR))

    fake_clock.advance(SUSPENDED_HOLD_SECONDS_MAX - 2 * HOUR)
    await still.make_janitor().run_once()
    assert [each.state for each in await still.read_deliveries()] == [DeliveryState.HELD], "it was not given up"
    suspended_for = fake_clock.now() - before.created_at - timedelta(seconds=600)
    board.set_response(AGENT, 204)
    await _resume(still, subscription)

    (after,) = await still.read_deliveries()
    assert after.give_up_at == before.give_up_at + suspended_for
    assert after.due_at == fake_clock.now()
    await dispatcher.run_once()
    assert [each.state for each in await still.read_deliveries()] == [DeliveryState.DELIVERED]


async def test_an_event_of_the_suspension_has_its_whole_retry_window_after_the_refresh(
    still: Engine, fake_clock: FakeClock
) -> None:
    subscription = make_subscription(state=WebhookState.SUSPENDED)
    await still.insert_webhooks(subscription)
    await still.finish_call(make_call())

    fake_clock.advance(5 * HOUR)
    await still.make_janitor().run_once()
    await _resume(still, subscription)

    (delivery,) = await still.read_deliveries()
    assert (delivery.state, delivery.give_up_at) == (DeliveryState.PENDING, fake_clock.now() + timedelta(hours=1))


async def test_what_an_owner_replays_in_the_suspension_has_its_whole_retry_window_after_it(
    still: Engine, fake_clock: FakeClock
) -> None:
    subscription, requested = make_subscription(), RequestedDeliveries(ids=still.ids)
    await still.insert_webhooks(subscription)
    await still.finish_call(make_call())
    await still.make_dispatcher(ReceiversByHost(410)).run_once()
    await _suspend(still, subscription)

    suspended = await still.read_webhook(subscription.id)

    async def replay(tx: Transaction) -> None:
        dead = await tx.webhook_deliveries.list_dead(subscription.id, limit=10)
        whole = await tx.deliveries.list_whole([each.id for each in dead], bytes_max=1_000_000)
        await requested.insert_replays(tx, suspended, whole)

    await still.store.write(replay)
    fake_clock.advance(5 * HOUR)
    await still.make_janitor().run_once()
    await _resume(still, subscription)

    (replayed,) = [each for each in await still.read_deliveries() if each.generation == 2]
    assert (replayed.state, replayed.give_up_at) == (DeliveryState.PENDING, fake_clock.now() + timedelta(hours=1))


async def test_a_suspension_that_lasts_too_long_ends_its_deliveries(still: Engine, fake_clock: FakeClock) -> None:
    subscription = make_subscription(state=WebhookState.SUSPENDED)
    await still.insert_webhooks(subscription)
    await still.finish_call(make_call())

    fake_clock.advance(SUSPENDED_HOLD_SECONDS_MAX + HOUR)
    await still.make_janitor().run_once()

    assert [each.state for each in await still.read_deliveries()] == [DeliveryState.DEAD]
    assert (await still.read_webhook(subscription.id)).missed_from is not None


async def test_what_becomes_pending_after_the_suspension_is_held_too(still: Engine, fake_clock: FakeClock) -> None:
    """A probe that fails leaves a pending delivery. The next pause holds it, and stops its window."""
    board, subscription = ReceiversByHost(500), make_subscription()
    await still.insert_webhooks(subscription)
    await still.finish_call(make_call())
    await _suspend(still, subscription)
    dispatcher, janitor = still.make_dispatcher(board), still.make_janitor()

    for _ in range(4):
        fake_clock.advance(HOUR)
        await janitor.run_once()
        await dispatcher.run_once()
        fake_clock.advance(300)
        await dispatcher.run_once()

    (delivery,) = await still.read_deliveries()
    assert delivery.attempts == len(board.posts) > 1
    assert delivery.give_up_at > fake_clock.now()


async def _suspend(engine: Engine, webhook: Webhook, *, pause: timedelta = timedelta(0)) -> None:
    breaker = CircuitBreaker(failures=1, openings=1, paused_until=START + pause)
    suspended = replace(await engine.read_webhook(webhook.id), state=WebhookState.SUSPENDED, breaker=breaker)
    await engine.store.write(lambda tx: tx.webhooks.update(suspended, WebhookPart.STATE, WebhookPart.HEALTH))
    await engine.store.write(lambda tx: tx.webhook_deliveries.hold_pending(webhook.id, limit=10, suspended=True))


async def _resume(engine: Engine, webhook: Webhook) -> None:
    active = with_state(await engine.read_webhook(webhook.id), WebhookState.ACTIVE)
    await engine.store.write(lambda tx: tx.webhooks.update(active, WebhookPart.STATE, WebhookPart.HEALTH))
    await engine.make_janitor().run_once()


# -- the ids of messages ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message_ids", MessageIds)
async def test_the_webhook_id_is_the_event_id_or_an_id_of_the_message_and_never_changes(
    still: Engine, fake_clock: FakeClock, message_ids: MessageIds
) -> None:
    board = ReceiversByHost(500)
    for place in "ab":
        await still.insert_webhooks(make_subscription(id=WebhookId("sub_" + place * 32), message_ids=message_ids))
    await still.finish_call(make_call())
    dispatcher = still.make_dispatcher(board)
    for _ in range(2):
        await dispatcher.run_once()
        fake_clock.advance(10)

    (event,) = await still.read_events()
    ids = {post.headers["x-mcp-subscription-id"][-1]: set[str]() for post in board.posts}
    for post in board.posts:
        ids[post.headers["x-mcp-subscription-id"][-1]].add(post.headers["webhook-id"])
    assert len(board.posts) == 4
    assert {body["eventId"] for body in board.bodies()} == {event.id}, "the eventId is the same in every mode"
    if message_ids is MessageIds.EVENT:
        assert ids == {"a": {event.id}, "b": {event.id}}
    else:
        assert ids["a"] != ids["b"]
        assert {len(each) for each in ids.values()} == {1}
        assert all(next(iter(each)).startswith("msg_event_") for each in ids.values())
