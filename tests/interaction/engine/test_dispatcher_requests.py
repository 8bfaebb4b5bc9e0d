"""What an attempt sends: the same bytes under the same id, signed anew, to where the webhook is by then."""

from dataclasses import replace
from datetime import datetime, timedelta

import httpx
import orjson
import pytest

from ringback.domain.delivery import DeliveryState
from ringback.domain.webhook import WebhookSecret, WebhookState
from ringback.domain.webhook_rows import WebhookPart
from ringback.signing.standard_webhooks import verify
from tests.support.builders import make_call, make_webhook
from tests.support.clock import START, FakeClock
from tests.support.engine import Engine
from tests.support.examples import WEBHOOK
from tests.support.scripted_receiver import ScriptedReceiver, make_due_delivery, wait_until_due

# -- what is sent -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R23")
@pytest.mark.requirement("R27")
async def test_every_attempt_sends_the_same_bytes_under_the_same_id_with_a_fresh_signature(
    still: Engine, fake_clock: FakeClock
) -> None:
    delivery = await make_due_delivery(still)
    mailman = ScriptedReceiver(500)
    dispatcher = still.make_dispatcher(mailman)
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
    await make_due_delivery(still, secrets=secrets)
    mailman = ScriptedReceiver(204)

    await still.make_dispatcher(mailman).run_once()

    (post,) = mailman.posts
    assert len(post.headers["webhook-signature"].split()) == 2
    for secret in (new, old):
        verify(post.headers, post.content, [secret], now=START)


async def test_every_attempt_has_the_webhooks_own_headers_and_its_excerpt_does_not_repeat_them(still: Engine) -> None:
    delivery = await make_due_delivery(still, headers=(("authorization", "Bearer gateway-key"),))

    async def echo(request: httpx.Request) -> httpx.Response:
        return httpx.Response(500, text=f"refused: {request.headers['authorization']}")

    await still.make_dispatcher(echo).run_once()

    (attempt,) = await still.read_attempts(delivery)
    assert attempt.excerpt == "refused: [authorization]"


async def test_a_webhook_and_its_attempt_show_the_status_and_where_a_redirect_leads(still: Engine) -> None:
    delivery = await make_due_delivery(still)

    async def redirect(_: httpx.Request) -> httpx.Response:
        return httpx.Response(308, headers={"location": "https://moved.example/hook?token=1"})

    await still.make_dispatcher(redirect).run_once()

    (attempt,) = await still.read_attempts(delivery)
    webhook = await still.read_webhook(delivery.webhook_id)
    assert (attempt.status_code, attempt.detail) == (308, "Location: https://moved.example/hook")
    assert webhook.last_error == "http_3xx"
    assert webhook.last_error_detail == "status 308, Location: https://moved.example/hook"
    assert webhook.last_error_advice == attempt.advice


# -- webhooks that change meanwhile -----------------------------------------------------------------------------------------


async def test_due_deliveries_of_a_disabled_webhook_are_held_and_not_sent(still: Engine) -> None:
    delivery = await make_due_delivery(still)
    webhook = await still.read_webhook(delivery.webhook_id)
    await still.store.write(
        lambda tx: tx.webhooks.update(replace(webhook, state=WebhookState.DISABLED), WebhookPart.STATE)
    )
    mailman = ScriptedReceiver(204)

    await still.make_dispatcher(mailman).run_once()

    held = await still.read_delivery(delivery)
    assert (held.state, held.finished_at, held.lease_token) == (DeliveryState.HELD, None, None)
    assert mailman.posts == []


async def test_a_webhook_that_is_removed_during_an_attempt_leaves_the_delivery_cancelled(still: Engine) -> None:
    delivery = await make_due_delivery(still)

    async def remove(request: httpx.Request) -> httpx.Response:
        await still.store.write(lambda tx: tx.webhooks.delete(delivery.webhook_id))
        return httpx.Response(500)

    await still.make_dispatcher(remove).run_once()

    assert (await still.read_delivery(delivery)).state is DeliveryState.CANCELLED


async def test_a_url_that_was_changed_is_where_the_next_attempt_goes(still: Engine, fake_clock: FakeClock) -> None:
    delivery = await make_due_delivery(still)
    webhook = await still.read_webhook(delivery.webhook_id)
    mailman = ScriptedReceiver(500, 204)
    dispatcher = still.make_dispatcher(mailman)

    await dispatcher.run_once()
    await still.store.write(
        lambda tx: tx.webhooks.update(replace(webhook, url="https://moved.example/"), WebhookPart.SETTINGS)
    )
    await wait_until_due(still, fake_clock, delivery)
    await dispatcher.run_once()

    assert [request.url.host for request in mailman.posts] == ["agent.example", "moved.example"]


async def test_a_webhook_keeps_account_of_how_its_receiver_is_doing(still: Engine, fake_clock: FakeClock) -> None:
    delivery = await make_due_delivery(still)
    dispatcher = still.make_dispatcher(ScriptedReceiver(500, 404, 204))

    async def account() -> tuple[str | None, datetime | None, datetime | None]:
        webhook = await still.read_webhook(delivery.webhook_id)
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


async def test_the_last_delivery_time_is_stored_to_the_second(still: Engine, fake_clock: FakeClock) -> None:
    webhook = make_webhook()
    await still.insert_webhooks(webhook)
    dispatcher = still.make_dispatcher(ScriptedReceiver(204))
    delivered_at: list[datetime | None] = []

    for _ in range(3):
        await still.finish_call(make_call())
        await dispatcher.run_once()
        delivered_at.append((await still.read_webhook(webhook.id)).last_delivery_at)
        fake_clock.advance(0.6)

    assert delivered_at == [START, START, START + timedelta(seconds=1.2)]
