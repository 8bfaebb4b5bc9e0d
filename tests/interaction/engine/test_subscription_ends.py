"""Subscriptions end with the API key that subscribed them, and with their event type; their receivers get an envelope."""

import orjson
import pytest

from ringback.domain.delivery import DeliveryState
from ringback.domain.principal import Caller
from ringback.protocol.mcp_events.errors import ErrorProfile
from ringback.services.access.api_keys import ApiKeys
from ringback.services.webhooks.subscription_ends import terminate_of_event, terminate_of_keys
from tests.support.builders import make_api_key, make_call
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.subscriptions import HOOK, SubscriptionStage, with_key
from tests.support.verifications import dispatch_all_due

GRACE_SECONDS = 2.0


async def insert_key(engine: Engine, **over: object) -> Caller:
    key = make_api_key(**over)
    await engine.store.write(lambda tx: tx.api_keys.insert(key))
    return with_key(key.id)


async def revoke(engine: Engine, caller: Caller) -> None:
    assert caller.key_id is not None
    await ApiKeys(store=engine.store, ids=engine.ids).revoke_key(caller.key_id)


async def test_a_revoked_key_ends_its_subscriptions_and_notifies_their_receivers(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = SubscriptionStage(still)
    revoked, valid = await insert_key(still), await insert_key(still)
    ended = await stage.subscribe(caller=revoked, error_profile=ErrorProfile.SEP)
    kept = await stage.subscribe(caller=valid, url=f"{HOOK}/kept")
    fake_clock.advance(GRACE_SECONDS)
    await still.finish_call(make_call())

    await revoke(still, revoked)
    await still.run_recovery()

    sent = {each.headers["x-mcp-subscription-id"]: orjson.loads(each.content) for each in await dispatch_all_due(still)}
    assert sent[ended.id]["type"] == "terminated"
    assert sent[ended.id]["error"]["code"] == -32024
    assert sent[kept.id]["name"] == "call.finished"
    await still.run_recovery()
    assert await stage.read_webhook(ended) is None
    assert await stage.read_webhook(kept) is not None
    await stage.unsubscribe()  # it was live once


async def test_what_was_open_when_the_key_ended_is_not_sent_any_more(still: Engine, fake_clock: FakeClock) -> None:
    stage = SubscriptionStage(still)
    caller = await insert_key(still)
    await stage.subscribe(caller=caller)
    fake_clock.advance(GRACE_SECONDS)
    await still.finish_call(make_call())
    await revoke(still, caller)
    await still.run_recovery()
    await still.finish_call(make_call())

    states = [each.state for each in await still.read_deliveries() if each.event_id is not None]

    assert states == [DeliveryState.CANCELLED]


async def test_an_expired_key_ends_its_subscriptions_unless_another_key_has_refreshed_them(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = SubscriptionStage(still)
    expiring = await insert_key(still, expires_at=fake_clock.now().replace(hour=23))
    successor = await insert_key(still)
    refreshed = await stage.subscribe(caller=expiring)
    left = await stage.subscribe(caller=expiring, url=f"{HOOK}/left")
    await stage.subscribe(caller=successor)

    fake_clock.advance(10 * 3600)
    await still.run_recovery()
    await dispatch_all_due(still)
    await still.run_recovery()

    assert await stage.read_webhook(refreshed) is not None
    assert await stage.read_webhook(left) is None
    assert await stage.count_live() == 1


@pytest.mark.parametrize("many", [1, 45])
async def test_all_subscriptions_of_a_key_end_in_bounded_batches(still: Engine, many: int) -> None:
    stage = SubscriptionStage(still)
    caller = await insert_key(still)
    for number in range(many):
        await stage.subscribe(caller=caller, arguments={"tool": f"tool-{number}"})
    await revoke(still, caller)

    await still.run_recovery()

    assert await stage.count_live() == 0


async def test_one_transaction_ends_the_subscriptions_of_one_key(still: Engine) -> None:
    """Fifty revoked keys with nineteen subscriptions each ended in one."""
    stage = SubscriptionStage(still)
    for number in range(3):
        caller = await insert_key(still)
        await stage.subscribe(caller=caller, arguments={"tool": f"tool-{number}"})
        await revoke(still, caller)

    position = await still.store.write(lambda tx: terminate_of_keys(tx, still.recorder, after=""))

    assert (position is not None, await stage.count_live()) == (True, 2)


async def test_one_transaction_cancels_as_many_deliveries_of_a_keys_subscriptions_as_of_one(
    still: Engine, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty subscriptions with 199 open deliveries each were four thousand in one transaction."""
    monkeypatch.setattr("ringback.services.webhooks.subscription_ends.CANCELLED_DELIVERIES_BATCH_SIZE", 3)
    stage = SubscriptionStage(still)
    caller = await insert_key(still)
    for number in range(2):
        await stage.subscribe(caller=caller, url=f"{HOOK}/{number}")
    fake_clock.advance(GRACE_SECONDS)
    for _ in range(2):
        await still.finish_call(make_call())
    await revoke(still, caller)

    await still.store.write(lambda tx: terminate_of_keys(tx, still.recorder, after=""))
    cancelled = [each.state for each in await still.read_deliveries()].count(DeliveryState.CANCELLED)
    await still.run_recovery()

    assert (cancelled, await stage.count_live()) == (3, 0)


async def test_an_event_type_that_is_gone_ends_its_subscriptions(still: Engine) -> None:
    stage = SubscriptionStage(still)
    ended = await stage.subscribe("call.progress")
    kept = await stage.subscribe("call.finished")

    is_done = await still.store.write(lambda tx: terminate_of_event(tx, still.recorder, "call.progress"))

    assert is_done
    (terminated,) = await dispatch_all_due(still)
    error = orjson.loads(terminated.content)["error"]
    assert (error["code"], error["data"]) == (-32011, {"kind": "event"})
    assert terminated.headers["x-mcp-subscription-id"] == ended.id
    live = await stage.read_subscription(kept)
    assert live is not None
    assert live.ended_at is None


async def test_a_subscription_without_a_key_ends_only_by_its_lifetime(still: Engine) -> None:
    stage = SubscriptionStage(still)
    await stage.subscribe()

    await still.run_recovery()

    assert await stage.count_live() == 1
