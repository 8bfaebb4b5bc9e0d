"""A refresh grants the lifetime again, and says what the client has missed (mcp-events §6)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from ringback.domain.principal import OIDC_PRINCIPAL_PREFIX, Principal
from ringback.domain.webhook import PREVIOUS_SECRETS_MAX, SUBSCRIBE_GRACE_SECONDS, WebhookState
from ringback.domain.webhook_rows import WebhookPart
from ringback.protocol.mcp_events.errors import CallbackFailure
from ringback.protocol.mcp_events.grants import TtlPolicy, TtlRequest
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.subscriptions import CLIENT, HOOK, OTHER_SECRET, SubscriptionStage
from tests.support.verifications import dispatch_all_due

DAY_SECONDS = 86_400.0


async def test_a_refresh_grants_the_lifetime_again_and_signs_with_both_secrets(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = SubscriptionStage(still)
    first = await stage.subscribe()
    fake_clock.advance(3600)

    second = await stage.subscribe(secret=OTHER_SECRET, cursor="ignored while the subscription is live")

    assert second.id == first.id
    assert second.refresh_before == fake_clock.now() + timedelta(days=1)
    assert not second.truncated
    assert second.delivery_status is not None
    assert second.delivery_status.active
    await still.finish_call(make_call())
    (request,) = await dispatch_all_due(still)
    assert len(request.headers["webhook-signature"].split(" ")) == 2
    assert len(stage.requests) == 1
    assert await stage.count_live() == 1


async def test_a_refresh_makes_a_suspended_subscription_active_and_sends_what_was_held(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = SubscriptionStage(still)
    grant = await stage.subscribe()
    fake_clock.advance(60)
    webhook = await stage.read_webhook(grant)
    assert webhook is not None
    suspended = replace(
        webhook,
        state=WebhookState.SUSPENDED,
        failing_since=fake_clock.now(),
        last_error="certificate_expired",
    )
    await still.store.write(lambda tx: tx.webhooks.update(suspended, WebhookPart.STATE, WebhookPart.HEALTH))
    await still.finish_call(make_call())

    refreshed = await stage.subscribe()

    status = refreshed.delivery_status
    assert status is not None
    assert (status.active, status.last_error, status.failed_since) == (
        True,
        CallbackFailure.TLS_ERROR,
        fake_clock.now(),
    )
    assert len(await dispatch_all_due(still)) == 1


@pytest.mark.parametrize(
    ("requested", "granted"),
    [
        (TtlRequest.SERVER_DEFAULT, DAY_SECONDS),
        (1.0, 60.0),
        (3600.0, 3600.0),
        (60 * DAY_SECONDS, 30 * DAY_SECONDS),
        (TtlRequest.NO_EXPIRY, None),
    ],
)
async def test_a_lifetime_is_clamped_and_never_refused(
    still: Engine, fake_clock: FakeClock, requested: float | TtlRequest, granted: float | None
) -> None:
    policy = TtlPolicy(default_seconds=DAY_SECONDS, shortest_seconds=60.0, longest_seconds=30 * DAY_SECONDS)
    stage = SubscriptionStage(still, ttl_policy=policy)

    grant = await stage.subscribe(ttl=requested)

    expected = None if granted is None else fake_clock.now() + timedelta(seconds=granted)
    assert grant.refresh_before == expected
    stored = await stage.read_subscription(grant)
    assert stored is not None
    assert stored.ttl_ms == (None if granted is None else granted * 1000)


async def test_a_subscription_that_was_not_refreshed_ends_and_may_begin_again(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = SubscriptionStage(still)
    grant = await stage.subscribe(ttl=3600.0)
    fake_clock.advance(1800)
    await still.finish_call(make_call())
    await dispatch_all_due(still)
    fake_clock.advance(1800)
    await still.finish_call(make_call())
    await still.run_recovery()

    assert await stage.read_webhook(grant) is None
    assert await stage.count_live() == 0
    ended = await stage.read_subscription(grant)
    assert ended is not None
    assert (ended.ended_at, ended.arguments) == (grant.refresh_before, "")
    assert len(await still.read_deliveries()) == 1
    from_now = await stage.subscribe()
    assert (from_now.id, from_now.truncated) == (grant.id, True)


async def test_a_lapsed_subscription_replays_what_it_had_already_under_the_same_message_ids(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = SubscriptionStage(still)
    grant = await stage.subscribe(ttl=3600.0)
    fake_clock.advance(60)
    await still.finish_call(make_call())
    (first,) = await dispatch_all_due(still)
    fake_clock.advance(3600)
    await still.run_recovery()

    again = await stage.subscribe(cursor=grant.cursor)
    fake_clock.advance(SUBSCRIBE_GRACE_SECONDS)

    assert not again.truncated
    (second,) = await dispatch_all_due(still)
    assert second.headers["webhook-id"] == first.headers["webhook-id"]
    assert second.content != b""


async def test_a_refresh_says_which_events_were_given_up(still: Engine, fake_clock: FakeClock) -> None:
    stage = SubscriptionStage(still)
    grant = await stage.subscribe()
    fake_clock.advance(60)
    await still.finish_call(make_call())
    await still.finish_call(make_call())
    await dispatch_all_due(still)
    webhook = await stage.read_webhook(grant)
    assert webhook is not None
    await still.store.write(lambda tx: tx.webhooks.update(replace(webhook, missed_from=1), WebhookPart.MISSED))

    refreshed = await stage.subscribe()

    assert refreshed.truncated
    assert refreshed.cursor == grant.cursor  # polling from here recovers them


async def test_the_cursor_of_a_refresh_stays_before_what_is_not_acknowledged(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = SubscriptionStage(still)
    grant = await stage.subscribe()
    fake_clock.advance(60)
    await still.finish_call(make_call())

    before = await stage.subscribe()
    await dispatch_all_due(still)
    after = await stage.subscribe()

    assert before.cursor == grant.cursor
    assert after.cursor == (await stage.subscribe(url=f"{HOOK}/now")).cursor


async def test_a_client_with_an_access_token_gets_no_subscription_without_expiry(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = SubscriptionStage(still)

    grant = await stage.subscribe(
        caller=replace(CLIENT, principal=Principal(f"{OIDC_PRINCIPAL_PREFIX}subject")), ttl=TtlRequest.NO_EXPIRY
    )

    assert grant.refresh_before == fake_clock.now() + timedelta(seconds=TtlPolicy().longest_seconds)


async def test_a_client_may_send_a_new_secret_with_every_refresh(still: Engine, fake_clock: FakeClock) -> None:
    stage = SubscriptionStage(still)

    for letter in "abcdefghijklmnop":
        await stage.subscribe(secret="whsec_" + letter * 32)
    fake_clock.advance(60)
    await still.finish_call(make_call())

    (request,) = await dispatch_all_due(still)
    assert len(request.headers["webhook-signature"].split(" ")) == 1 + PREVIOUS_SECRETS_MAX


async def test_a_refresh_gets_what_a_life_without_a_cursor_has_left_out(still: Engine, fake_clock: FakeClock) -> None:
    stage = SubscriptionStage(still)
    grant = await stage.subscribe(ttl=3600.0)
    fake_clock.advance(3600)
    await still.finish_call(make_call())
    await stage.subscribe()  # an older request, which a frozen node carries out now: its client does not get the answer

    refreshed = await stage.subscribe(cursor=grant.cursor)
    fake_clock.advance(SUBSCRIBE_GRACE_SECONDS)

    assert (refreshed.cursor, refreshed.truncated) == (grant.cursor, False)
    assert len(await dispatch_all_due(still)) == 1
    await stage.subscribe()  # late, and the subscription is live: this changes nothing
    again = await stage.subscribe(cursor=grant.cursor)
    assert (again.cursor != grant.cursor, again.truncated) == (True, False)
    assert len(await still.read_deliveries()) == 1


async def test_a_refresh_says_that_retention_has_removed_what_a_life_has_left_out(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = SubscriptionStage(still)
    grant = await stage.subscribe(ttl=3600.0)
    fake_clock.advance(3600)
    await still.finish_call(make_call())
    await stage.subscribe()
    fake_clock.advance(1)
    await still.store.write(lambda tx: tx.events.remove(cutoff=fake_clock.now(), limit=10))

    refreshed = await stage.subscribe(cursor=grant.cursor)

    assert refreshed.truncated
    assert refreshed.cursor != grant.cursor
    assert not await still.read_deliveries()


@pytest.mark.parametrize("max_age_seconds", [None, 600.0])
async def test_a_client_that_repeats_its_first_cursor_gets_nothing_twice_and_no_gap(
    still: Engine, fake_clock: FakeClock, max_age_seconds: float | None
) -> None:
    stage = SubscriptionStage(still)
    before = await stage.subscribe(url=f"{HOOK}/other", arguments={"tool": "none"})
    await still.finish_call(make_call())
    fake_clock.advance(3600)
    await still.finish_call(make_call())
    await stage.subscribe(cursor=before.cursor, max_age_seconds=max_age_seconds)
    fake_clock.advance(60)
    delivered = await dispatch_all_due(still)
    await still.finish_call(make_call())
    delivered += await dispatch_all_due(still)

    refreshed = await stage.subscribe(cursor=before.cursor, max_age_seconds=max_age_seconds)

    assert not refreshed.truncated
    assert len(delivered) == len(await still.read_deliveries()) == (3 if max_age_seconds is None else 2)
