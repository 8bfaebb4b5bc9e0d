"""Webhooks and their deliveries with RingbackClient and the real API, services and store in this process."""

from datetime import UTC, datetime

import pytest

from ringback.client import CallbackOptions, NotFound, RingbackClient, Webhook
from ringback.domain.delivery import DeliveryState
from ringback.signing.secrets import generate_secret
from tests.support.client_calls import start_call
from tests.support.service import CALLBACK_URL, ServiceUnderTest


@pytest.mark.requirement("R22")
async def test_a_webhook_is_registered_read_changed_and_removed(alice: RingbackClient) -> None:
    registered = await alice.register_webhook(CALLBACK_URL, upstream="git", retries="minutes", description="mine")
    changed = await alice.change_webhook(registered.id, state="disabled", events=["call.progress"])
    listed = [webhook async for webhook in alice.webhooks()]
    await alice.delete_webhook(registered.id)

    assert registered.secret is not None
    assert "upstream 'git'" in registered.hears
    assert (changed.state, changed.events, changed.retries) == ("disabled", ("call.progress",), "minutes")
    assert [webhook.model_dump() for webhook in listed] == [changed.model_dump(include=set(Webhook.model_fields))]
    with pytest.raises(NotFound, match="GET /v1/webhooks"):
        await alice.webhook(registered.id)


@pytest.mark.requirement("R22")
async def test_every_option_of_a_registration_is_understood(alice: RingbackClient) -> None:
    call = (await start_call(alice)).call
    cursor = (await alice.poll_events()).cursor

    webhook = await alice.register_webhook(
        CALLBACK_URL,
        secret=generate_secret(b"s" * 32),
        events=["call.finished"],
        upstream="git",
        tool="git_log",
        call_id=call.id,
        client_session_id="s1",
        correlation_id="c1",
        match_correlation=True,
        retries="days",
        include_result=True,
        description="all of them",
        cursor=cursor,
        expires_in_seconds=60.5,
    )

    assert webhook.secret is None
    assert (webhook.call_id, webhook.client_session_id, webhook.correlation_id) == (call.id, "s1", "c1")
    assert webhook.expires_at is not None


async def test_a_call_without_a_webhook_comes_with_a_hint(alice: RingbackClient) -> None:
    unheard = await start_call(alice)
    started = await start_call(
        alice, callback=CallbackOptions(url=CALLBACK_URL, retries="minutes", include_result=True)
    )

    assert unheard.webhooks == ()
    assert unheard.hint is not None
    assert [webhook.url for webhook in started.webhooks] == [CALLBACK_URL]
    assert started.callback_secret is not None
    assert started.hint is None


async def test_a_webhook_that_is_registered_twice_is_one_webhook(alice: RingbackClient) -> None:
    by_key = [await alice.register_webhook(CALLBACK_URL, idempotency_key="boot") for _ in range(2)]
    by_name = [await alice.put_webhook("agent", CALLBACK_URL) for _ in range(2)]

    assert by_key[0] == by_key[1]
    assert (by_name[0].id, by_name[1].secret) == (by_name[1].id, None)


async def test_deliveries_show_what_will_be_sent(alice: RingbackClient, service: ServiceUnderTest) -> None:
    webhook = await alice.register_webhook(CALLBACK_URL)
    started = await start_call(alice)
    await service.finish_call(started.call.id)

    pending = alice.deliveries(state="pending", webhook_id=webhook.id, call_id=started.call.id)
    (listed,) = [delivery async for delivery in pending]
    delivery = await alice.delivery(listed.id)

    assert (delivery.webhook_id, delivery.call_id) == (webhook.id, started.call.id)
    assert delivery.attempts == ()


@pytest.mark.requirement("R22")
async def test_a_webhook_is_tested_rotated_and_replayed(alice: RingbackClient, service: ServiceUnderTest) -> None:
    webhook = await alice.register_webhook(CALLBACK_URL)
    test = await alice.test_webhook(webhook.id)
    rotated = await alice.rotate_secret(webhook.id, overlap_seconds=60)
    await service.finish_call((await start_call(alice)).call.id)
    dead = [each for each in await service.read_deliveries("alice") if each.call_id]
    await service.settle_deliveries(dead, DeliveryState.DEAD)

    replay = await alice.replay_webhook(webhook.id, dead=True)
    by_time = await alice.replay_webhook(webhook.id, since=datetime(2020, 1, 1, tzinfo=UTC))
    again = await alice.redeliver(dead[0].id)

    assert (test.call_id, test.state) == (None, "pending")
    assert rotated.secret not in {None, webhook.secret}
    assert (replay.replayed, by_time.replayed, by_time.still_open) == (1, 0, 1)
    assert (again.generation, again.message_id) == (2, dead[0].message_id)
