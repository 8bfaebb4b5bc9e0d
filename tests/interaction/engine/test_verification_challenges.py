"""The challenge itself: what it says, what proves a URL, what does not, and when it is asked again."""

from typing import Final

import httpx
import orjson
import pytest

from ringback.domain.delivery import DeliveryState
from ringback.domain.webhook import WebhookState
from ringback.notifier.httpx_sender import HttpxSender
from ringback.notifier.verifier import CHALLENGE_SCHEDULE
from ringback.receiver import ReceiverApp
from ringback.signing.standard_webhooks import verify
from tests.support.builders import a_call
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.examples import WEBHOOK
from tests.support.proving import Proving, answers_challenges, dispatched, fails, says, states

SECRET = WEBHOOK.secrets[0].value
ACTIVE, PENDING = WebhookState.ACTIVE, WebhookState.PENDING_VERIFICATION
HELD = DeliveryState.HELD
REFUSALS: Final = {
    "another challenge": (says(200, json={"challenge": "another"}), "challenge_failed"),
    "no text": (says(200, json={"challenge": None}), "challenge_failed"),
    "no object": (says(200, json=["challenge"]), "challenge_failed"),
    "no JSON": (says(200, text="not JSON"), "challenge_failed"),
    "too much": (says(200, json={"challenge": "a" * 20_000}), "challenge_failed"),
    "nothing": (says(204), "challenge_failed"),
    "redirect": (says(302, headers={"location": "https://elsewhere.example/"}), "challenge_failed"),
    "not found": (says(404), "http_4xx"),
    "broken": (says(500), "http_5xx"),
    "nobody": (fails(httpx.ConnectError), "connection_refused"),
    "silence": (fails(httpx.ReadTimeout), "timeout"),
}


@pytest.mark.requirement("R26")
async def test_nothing_is_sent_before_the_url_has_proven_itself_and_what_was_held_goes_out_then(still: Engine) -> None:
    stage = Proving(still)
    webhook = await stage.register()
    await still.finish(a_call())

    assert webhook.state is PENDING
    assert await states(still) == {HELD}
    assert await dispatched(still) == []

    assert await stage.challenge() == 1

    assert (await still.webhook(webhook.id)).state is ACTIVE
    assert len(await dispatched(still)) == 1


async def test_a_challenge_is_signed_like_every_callback_and_names_the_subscription(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = Proving(still, says(404))
    webhook = await stage.register()

    await stage.challenge()

    (request,) = stage.sent()
    message = verify(request.headers, request.content, [SECRET], now=fake_clock.now())
    assert message.message_id.startswith("msg_verification_")
    assert request.headers["x-mcp-subscription-id"] == webhook.id
    assert set(orjson.loads(request.content)) == {"type", "challenge"}


async def test_every_challenge_has_a_nonce_of_its_own(still: Engine, fake_clock: FakeClock) -> None:
    stage = Proving(still, says(404))
    webhook = await stage.register()
    for _ in range(2):
        await stage.challenge()
        await stage.again(webhook)
        fake_clock.advance(1)

    nonces = [orjson.loads(request.content)["challenge"] for request in stage.sent()]

    assert len(set(nonces)) == len(nonces) == 2
    assert min(map(len, nonces)) >= 43  # 256 bits


async def test_our_own_receiver_answers_our_challenges(engine: Engine) -> None:
    receiver = HttpxSender(httpx.ASGITransport(app=ReceiverApp([SECRET])), clock=engine.clock)
    stage = Proving(engine)
    webhook = await stage.register()

    await stage.another_verifier(receiver).run_once()

    assert (await engine.webhook(webhook.id)).state is ACTIVE


@pytest.mark.requirement("R26")
@pytest.mark.parametrize("name", sorted(REFUSALS))
async def test_what_is_no_proof_leaves_it_pending_and_tells_why(still: Engine, name: str) -> None:
    answer, category = REFUSALS[name]
    stage = Proving(still, answer)
    webhook = await stage.register()

    await stage.challenge()

    after = await still.webhook(webhook.id)
    assert (after.state, after.last_error) == (PENDING, category)


async def test_a_challenge_is_repeated_by_a_ladder_that_ends(still: Engine, fake_clock: FakeClock) -> None:
    stage = Proving(still, says(500))
    webhook = await stage.register()
    for step in CHALLENGE_SCHEDULE.delays_seconds:
        assert await stage.challenge() == 1
        assert await stage.challenge() == 0
        fake_clock.advance(step)
    assert await stage.challenge() == 1

    fake_clock.advance(86_400)

    assert await stage.challenge() == 0
    assert (await still.webhook(webhook.id)).state is PENDING


async def test_who_asks_for_it_is_challenged_again_after_the_ladder(still: Engine, fake_clock: FakeClock) -> None:
    stage = Proving(still, says(500))
    webhook = await stage.register()
    while await stage.challenge():
        fake_clock.advance(700)

    stage.answer = answers_challenges
    await stage.again(webhook)
    await stage.challenge()

    after = await still.webhook(webhook.id)
    assert (after.state, after.last_error) == (ACTIVE, None)
