"""Proof without a challenge: an older proof, an allowlist, a list that the origin publishes, or a setting that needs none."""

from collections.abc import Callable

import httpx
import pytest

from ringback.domain.verification import PROOF_VALID_SECONDS
from ringback.domain.webhook import WebhookOrigin, WebhookState
from ringback.notifier.verification import RECEIVER_LIST_CACHE_SECONDS, RECEIVER_LIST_FAILURE_CACHE_SECONDS
from ringback.services.webhooks.webhook_checks import get_repeated_secret
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.examples import BOB, WEBHOOK
from tests.support.verifications import (
    VerificationHarness,
    answer_challenge,
    publish_receiver_list,
    raise_error,
    respond_with,
)

URL = WEBHOOK.url
ACTIVE, PENDING = WebhookState.ACTIVE, WebhookState.PENDING_VERIFICATION


async def test_a_proof_serves_the_same_principal_at_the_same_url_for_a_while(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = VerificationHarness(still)
    await stage.register_webhook(URL)
    await stage.send_due_challenges()

    assert (await stage.register_webhook(URL)).state is ACTIVE
    assert (await stage.register_webhook(URL + "?other")).state is PENDING
    assert (await stage.register_webhook(URL, principal=BOB)).state is PENDING
    fake_clock.advance(PROOF_VALID_SECONDS)
    assert (await stage.register_webhook(URL)).state is PENDING


async def test_a_repeated_registration_shows_the_secret_also_after_the_proof(
    still: Engine, fake_clock: FakeClock
) -> None:
    """The response to a registration waits for the proof: without the secret, a lost response could not be made good."""
    stage = VerificationHarness(still)
    webhook = await stage.register_webhook(URL, created_at=fake_clock.now(), updated_at=fake_clock.now())
    fake_clock.advance(1)
    await stage.send_due_challenges()

    proven = await still.read_webhook(webhook.id)

    assert proven.state is ACTIVE
    assert get_repeated_secret(proven, now=fake_clock.now()) == webhook.secrets[0].value


async def test_a_webhook_that_waits_is_active_when_another_has_proven_their_url(still: Engine) -> None:
    stage = VerificationHarness(still, respond_with(404))
    first, second = await stage.register_webhook(), await stage.register_webhook()
    await stage.send_due_challenges()
    stage.answer = answer_challenge
    await stage.request_challenge(first)
    await stage.send_due_challenges()
    await stage.request_challenge(second)

    assert (await still.read_webhook(second.id)).state is ACTIVE


async def test_urls_on_the_allowlist_need_no_proof(still: Engine) -> None:
    stage = VerificationHarness(still, allowlist=["https://agent.example/hooks"])

    assert (await stage.register_webhook("https://agent.example/hooks/a?b=c")).state is ACTIVE
    assert (await stage.register_webhook("https://agent.example/hooks-of-others")).state is PENDING
    assert (await stage.register_webhook("https://agent.example:8443/hooks")).state is PENDING


@pytest.mark.requirement("R26")
async def test_an_origin_may_publish_where_callbacks_are_wanted(still: Engine) -> None:
    stage = VerificationHarness(still, publish_receiver_list("/hooks/"))
    wanted = await stage.register_webhook("https://agent.example/hooks/a")
    other = await stage.register_webhook("https://agent.example/other")

    await stage.send_due_challenges()

    assert (await still.read_webhook(wanted.id)).state is ACTIVE
    assert (await still.read_webhook(other.id)).last_error == "http_4xx"


async def test_a_published_list_is_fetched_once_in_ten_minutes(still: Engine, fake_clock: FakeClock) -> None:
    stage = VerificationHarness(still, publish_receiver_list("/elsewhere"))
    for number in range(3):
        await stage.register_webhook(f"https://agent.example/{number}")
        await stage.send_due_challenges()
    assert len(stage.sent_requests("GET")) == 1

    fake_clock.advance(RECEIVER_LIST_CACHE_SECONDS)
    await stage.register_webhook("https://agent.example/later")
    await stage.send_due_challenges()

    assert len(stage.sent_requests("GET")) == 2


@pytest.mark.parametrize("failure", [respond_with(503), raise_error(httpx.ReadTimeout)], ids=["503", "timeout"])
async def test_a_list_that_an_origin_failed_to_send_is_fetched_again_at_the_next_challenge(
    still: Engine, fake_clock: FakeClock, failure: Callable[[httpx.Request], httpx.Response]
) -> None:
    """As during a deployment: it counted as an origin without a list for ten minutes, as long as challenges are repeated."""
    stage = VerificationHarness(
        still, lambda request: failure(request) if request.method == "GET" else respond_with(404)(request)
    )
    webhook = await stage.register_webhook("https://agent.example/hooks/a")
    await stage.send_due_challenges()
    stage.answer = publish_receiver_list("/hooks/")
    fake_clock.advance(RECEIVER_LIST_FAILURE_CACHE_SECONDS)
    await stage.send_due_challenges()

    assert (await still.read_webhook(webhook.id)).state is ACTIVE


async def test_no_receiver_list_is_fetched_from_an_unreachable_origin(still: Engine) -> None:
    stage = VerificationHarness(still, raise_error(httpx.ConnectError))
    await stage.register_webhook()

    await stage.send_due_challenges()

    assert stage.sent_requests("GET") == []


async def test_by_default_only_subscriptions_of_mcp_clients_prove_themselves(still: Engine) -> None:
    stage = VerificationHarness(still, mode="mcp")

    born = [
        (await stage.register_webhook(origin=origin)).state
        for origin in (WebhookOrigin.REST, WebhookOrigin.CALL, WebhookOrigin.MCP)
    ]

    assert born == [ACTIVE, ACTIVE, PENDING]
