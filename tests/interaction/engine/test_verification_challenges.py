"""The challenge itself: what it says, what proves a URL, what does not, and when it is asked again."""

from typing import Final

import httpx
import orjson
import pytest

from ringback.domain.delivery import DeliveryState
from ringback.domain.webhook import WebhookState
from ringback.notifier.http.httpx_sender import HttpxSender
from ringback.notifier.verifier import CHALLENGE_SCHEDULE
from ringback.receiver import ReceiverApp
from ringback.signing.standard_webhooks import verify
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.examples import WEBHOOK
from tests.support.verifications import (
    VerificationHarness,
    answer_challenge,
    delivery_states,
    dispatch_all_due,
    raise_error,
    respond_with,
)

SECRET = WEBHOOK.secrets[0].value
ACTIVE, PENDING = WebhookState.ACTIVE, WebhookState.PENDING_VERIFICATION
HELD = DeliveryState.HELD
REFUSALS: Final = {
    "another challenge": (respond_with(200, json={"challenge": "another"}), "challenge_failed"),
    "no text": (respond_with(200, json={"challenge": None}), "challenge_failed"),
    "no object": (respond_with(200, json=["challenge"]), "challenge_failed"),
    "no JSON": (respond_with(200, text="not JSON"), "challenge_failed"),
    "too much": (respond_with(200, json={"challenge": "a" * 20_000}), "challenge_failed"),
    "nothing": (respond_with(204), "challenge_failed"),
    "redirect": (respond_with(302, headers={"location": "https://elsewhere.example/"}), "http_3xx"),
    "not found": (respond_with(404), "http_4xx"),
    "broken": (respond_with(500), "http_5xx"),
    "unreachable": (raise_error(httpx.ConnectError), "connection_refused"),
    "silence": (raise_error(httpx.ReadTimeout), "response_timeout"),
}


@pytest.mark.requirement("R26")
async def test_nothing_is_sent_before_the_url_has_proven_itself_and_what_was_held_goes_out_then(still: Engine) -> None:
    stage = VerificationHarness(still)
    webhook = await stage.register_webhook()
    await still.finish_call(make_call())

    assert webhook.state is PENDING
    assert await delivery_states(still) == {HELD}
    assert await dispatch_all_due(still) == []

    assert await stage.send_due_challenges() == 1

    assert (await still.read_webhook(webhook.id)).state is ACTIVE
    assert len(await dispatch_all_due(still)) == 1


async def test_a_challenge_is_signed_like_every_callback_and_names_the_subscription(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = VerificationHarness(still, respond_with(404))
    webhook = await stage.register_webhook()

    await stage.send_due_challenges()

    (request,) = stage.sent_requests()
    message = verify(request.headers, request.content, [SECRET], now=fake_clock.now())
    assert message.message_id.startswith("msg_verification_")
    assert request.headers["x-mcp-subscription-id"] == webhook.id
    assert set(orjson.loads(request.content)) == {"type", "challenge"}


async def test_every_challenge_has_a_nonce_of_its_own(still: Engine, fake_clock: FakeClock) -> None:
    stage = VerificationHarness(still, respond_with(404))
    webhook = await stage.register_webhook()
    for _ in range(2):
        await stage.send_due_challenges()
        await stage.request_challenge(webhook)
        fake_clock.advance(1)

    nonces = [orjson.loads(request.content)["challenge"] for request in stage.sent_requests()]

    assert len(set(nonces)) == len(nonces) == 2
    assert min(map(len, nonces)) >= 43  # 256 bits


async def test_our_own_receiver_answers_our_challenges(engine: Engine) -> None:
    receiver = HttpxSender(httpx.ASGITransport(app=ReceiverApp([SECRET])), clock=engine.clock)
    stage = VerificationHarness(engine)
    webhook = await stage.register_webhook()

    await stage.make_verifier(receiver).run_once()

    assert (await engine.read_webhook(webhook.id)).state is ACTIVE


@pytest.mark.requirement("R26")
@pytest.mark.parametrize("name", sorted(REFUSALS))
async def test_an_invalid_challenge_response_leaves_the_webhook_pending_with_a_reason(still: Engine, name: str) -> None:
    answer, category = REFUSALS[name]
    stage = VerificationHarness(still, answer)
    webhook = await stage.register_webhook()

    await stage.send_due_challenges()

    after = await still.read_webhook(webhook.id)
    assert (after.state, after.last_error) == (PENDING, category)


async def test_a_challenge_is_repeated_by_a_schedule_that_ends(still: Engine, fake_clock: FakeClock) -> None:
    stage = VerificationHarness(still, respond_with(500))
    webhook = await stage.register_webhook()
    for step in CHALLENGE_SCHEDULE.delays_seconds:
        assert await stage.send_due_challenges() == 1
        assert await stage.send_due_challenges() == 0
        fake_clock.advance(step)
    assert await stage.send_due_challenges() == 1

    fake_clock.advance(86_400)

    assert await stage.send_due_challenges() == 0
    assert (await still.read_webhook(webhook.id)).state is PENDING


async def test_an_owner_can_request_another_challenge_after_the_last_scheduled_one(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = VerificationHarness(still, respond_with(500))
    webhook = await stage.register_webhook()
    while await stage.send_due_challenges():
        fake_clock.advance(700)

    stage.answer = answer_challenge
    await stage.request_challenge(webhook)
    await stage.send_due_challenges()

    after = await still.read_webhook(webhook.id)
    assert (after.state, after.last_error) == (ACTIVE, None)
