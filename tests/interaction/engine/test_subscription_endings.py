"""Subscriptions that the service ends, and the envelope that their receivers get."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from ringback.domain.delivery import DeliveryKind, DeliveryState
from ringback.domain.event_subscriptions import SubscriptionEnd
from ringback.domain.ids import WebhookId
from ringback.domain.webhook import MessageIds, WebhookState
from ringback.domain.webhook_rows import WebhookPart
from ringback.protocol.mcp_events.backend import SubscriptionGrant
from ringback.protocol.mcp_events.errors import ErrorProfile
from ringback.protocol.mcp_events.grants import TtlRequest
from ringback.services.webhooks.subscription_ends import (
    ABANDONED_SECONDS,
    remove_subscription_batch,
    terminate_of_event,
)
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.receivers_by_host import ReceiversByHost
from tests.support.subscriptions import SubscriptionStage

AFTER_GRACE_SECONDS = 60


async def fail_for(
    engine: Engine, grant: SubscriptionGrant, *, seconds: float, state: WebhookState = WebhookState.SUSPENDED
) -> None:
    """The receiver has failed for so long."""
    webhook = await engine.read_webhook(WebhookId(grant.id))
    since = engine.clock.now() - timedelta(seconds=seconds)
    failing = replace(webhook, state=state, last_error="http_5xx", failing_since=since)
    await engine.store.write(lambda tx: tx.webhooks.update(failing, WebhookPart.STATE, WebhookPart.HEALTH))


async def remove(engine: Engine, grant: SubscriptionGrant) -> None:
    await engine.store.write(
        partial(remove_subscription_batch, recorder=engine.recorder, subscription_id=WebhookId(grant.id))
    )


@pytest.mark.parametrize(("profile", "code"), [(ErrorProfile.SKETCH, -32012), (ErrorProfile.SEP, -32024)])
async def test_the_receiver_of_a_removed_subscription_gets_the_codes_of_its_client(
    still: Engine, profile: ErrorProfile, code: int
) -> None:
    board, stage = ReceiversByHost(), SubscriptionStage(still)
    grant = await stage.subscribe(error_profile=profile)

    await remove(still, grant)
    await still.make_dispatcher(board).run_once()

    (body,) = board.bodies()
    assert (body["type"], body["error"]["code"]) == ("terminated", code)
    assert body["error"]["message"].startswith("Forbidden: ")
    subscription = await stage.read_subscription(grant)
    assert subscription is not None
    assert subscription.end is SubscriptionEnd.REMOVED
    assert await stage.count_live() == 0


async def test_a_receiver_that_has_missed_events_gets_nothing_after_the_end_of_its_subscription(still: Engine) -> None:
    """It got a gap: from where to poll for a subscription of which it had just learned that it has ended."""
    board, stage = ReceiversByHost(), SubscriptionStage(still)
    grant = await stage.subscribe()
    webhook = await still.read_webhook(WebhookId(grant.id))
    missed = replace(webhook, missed_from=1)
    await still.store.write(lambda tx: tx.webhooks.update(missed, WebhookPart.MISSED))

    await remove(still, grant)
    dispatcher = still.make_dispatcher(board)
    for _ in range(3):
        await dispatcher.run_once()

    assert [body["type"] for body in board.bodies()] == ["terminated"]


async def test_the_receivers_of_a_removed_event_type_learn_that_it_does_not_exist(still: Engine) -> None:
    board, stage = ReceiversByHost(), SubscriptionStage(still)
    await stage.subscribe()
    await stage.subscribe(arguments={"tool": "add"})
    await stage.subscribe("call.progress")

    await still.store.write(lambda tx: terminate_of_event(tx, still.recorder, "call.finished"))
    dispatcher = still.make_dispatcher(board)
    await dispatcher.run_once()
    await dispatcher.run_once()

    assert [body["error"]["data"] for body in board.bodies()] == [{"kind": "event"}] * 2
    assert {body["error"]["code"] for body in board.bodies()} == {-32011}
    assert await stage.count_live() == 1


@pytest.mark.parametrize("answer", [204, 500])
async def test_a_subscription_without_expiry_whose_receiver_fails_for_a_week_is_ended(
    still: Engine, answer: int
) -> None:
    board, stage = ReceiversByHost(answer), SubscriptionStage(still)
    grant = await stage.subscribe(ttl=TtlRequest.NO_EXPIRY)
    await fail_for(still, grant, seconds=ABANDONED_SECONDS)

    await still.make_janitor().run_once()
    await still.make_dispatcher(board).run_once()

    (body,) = board.bodies()
    assert body["error"]["code"] == -32015
    assert body["error"]["data"] == {"reason": "http_5xx"}
    assert await stage.count_live() == 0


async def test_an_abandoned_subscription_with_more_deliveries_than_a_batch_is_ended_as_well(
    still: Engine, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.services.webhooks.subscription_ends.CANCELLED_DELIVERIES_BATCH_SIZE", 2)
    board, stage = ReceiversByHost(), SubscriptionStage(still)
    grant = await stage.subscribe(ttl=TtlRequest.NO_EXPIRY)
    fake_clock.advance(AFTER_GRACE_SECONDS)
    await fail_for(still, grant, seconds=ABANDONED_SECONDS)
    for _ in range(3):
        await still.finish_call(make_call())

    janitor = still.make_janitor()
    for _ in range(3):
        await janitor.run_once()
    await still.make_dispatcher(board).run_once()

    (body,) = board.bodies()
    assert body["error"]["data"] == {"reason": "http_5xx"}
    subscription = await stage.read_subscription(grant)
    assert subscription is not None
    assert subscription.end is SubscriptionEnd.TERMINATED


@pytest.mark.parametrize(
    ("seconds", "state", "ttl"),
    [
        (ABANDONED_SECONDS - 1, WebhookState.SUSPENDED, TtlRequest.NO_EXPIRY),
        (ABANDONED_SECONDS, WebhookState.ACTIVE, TtlRequest.NO_EXPIRY),
        (ABANDONED_SECONDS, WebhookState.SUSPENDED, TtlRequest.SERVER_DEFAULT),
    ],
)
async def test_other_failing_subscriptions_stay(still: Engine, seconds: float, state: WebhookState, ttl: Any) -> None:
    stage = SubscriptionStage(still)
    grant = await stage.subscribe(ttl=ttl)
    await fail_for(still, grant, seconds=seconds, state=state)

    await still.make_janitor().run_once()

    assert await stage.count_live() == 1


async def test_open_deliveries_of_an_ended_subscription_are_cancelled(still: Engine, fake_clock: FakeClock) -> None:
    board, stage = ReceiversByHost(503), SubscriptionStage(still)
    grant = await stage.subscribe()
    fake_clock.advance(AFTER_GRACE_SECONDS)
    await still.finish_call(make_call())
    await still.make_dispatcher(board).run_once()

    await remove(still, grant)

    kinds = {delivery.kind: delivery.state for delivery in await still.read_deliveries()}
    assert kinds == {DeliveryKind.EVENT: DeliveryState.CANCELLED, DeliveryKind.TERMINATED: DeliveryState.PENDING}


async def test_a_client_that_subscribes_again_no_longer_gets_the_end_of_its_subscription(
    still: Engine, fake_clock: FakeClock
) -> None:
    board, stage = ReceiversByHost(), SubscriptionStage(still)
    grant = await stage.subscribe()
    await remove(still, grant)

    again = await stage.subscribe()
    fake_clock.advance(AFTER_GRACE_SECONDS)
    await still.finish_call(make_call())
    await still.make_dispatcher(board).run_once()

    assert again.id == grant.id
    assert [body.get("name") for body in board.bodies()] == ["call.finished"]


@pytest.mark.parametrize("profile", ErrorProfile)
async def test_only_a_client_that_declares_the_extension_gets_ids_of_messages(
    still: Engine, profile: ErrorProfile
) -> None:
    stage = SubscriptionStage(still, message_ids=MessageIds.MESSAGE)
    grant = await stage.subscribe(error_profile=profile)

    webhook = await stage.read_webhook(grant)

    assert webhook is not None
    assert webhook.message_ids is (MessageIds.MESSAGE if profile is ErrorProfile.SEP else MessageIds.EVENT)
    refreshed = await stage.subscribe(error_profile=ErrorProfile.SKETCH)
    webhook = await stage.read_webhook(refreshed)
    assert webhook is not None
    assert webhook.message_ids is MessageIds.EVENT, "a refresh decides again"
