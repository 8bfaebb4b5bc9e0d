"""Proof that needs no challenge: an older proof, an allowlist, a list that the origin publishes, or nobody who asks for any."""

import httpx
import pytest

from ringback.domain.verification import PROOF_VALID_SECONDS
from ringback.domain.webhook import WebhookOrigin, WebhookState
from ringback.notifier.consent import RECEIVER_LIST_CACHE_SECONDS
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.examples import BOB, WEBHOOK
from tests.support.proving import Proving, answers_challenges, fails, publishes, says

URL = WEBHOOK.url
ACTIVE, PENDING = WebhookState.ACTIVE, WebhookState.PENDING_VERIFICATION


async def test_a_proof_serves_the_same_principal_at_the_same_url_for_a_while(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = Proving(still)
    await stage.register(URL)
    await stage.challenge()

    assert (await stage.register(URL)).state is ACTIVE
    assert (await stage.register(URL + "?other")).state is PENDING
    assert (await stage.register(URL, principal=BOB)).state is PENDING
    fake_clock.advance(PROOF_VALID_SECONDS)
    assert (await stage.register(URL)).state is PENDING


async def test_a_webhook_that_waits_is_active_when_another_has_proven_their_url(still: Engine) -> None:
    stage = Proving(still, says(404))
    first, second = await stage.register(), await stage.register()
    await stage.challenge()
    stage.answer = answers_challenges
    await stage.again(first)
    await stage.challenge()
    await stage.again(second)

    assert (await still.webhook(second.id)).state is ACTIVE


async def test_urls_on_the_allowlist_need_no_proof(still: Engine) -> None:
    stage = Proving(still, allowlist=["https://agent.example/hooks"])

    assert (await stage.register("https://agent.example/hooks/a?b=c")).state is ACTIVE
    assert (await stage.register("https://agent.example/hooks-of-others")).state is PENDING
    assert (await stage.register("https://agent.example:8443/hooks")).state is PENDING


@pytest.mark.requirement("R26")
async def test_an_origin_may_publish_where_callbacks_are_wanted(still: Engine) -> None:
    stage = Proving(still, publishes("/hooks/"))
    wanted = await stage.register("https://agent.example/hooks/a")
    other = await stage.register("https://agent.example/other")

    await stage.challenge()

    assert (await still.webhook(wanted.id)).state is ACTIVE
    assert (await still.webhook(other.id)).last_error == "http_4xx"


async def test_a_published_list_is_fetched_once_in_ten_minutes(still: Engine, fake_clock: FakeClock) -> None:
    stage = Proving(still, publishes("/elsewhere"))
    for number in range(3):
        await stage.register(f"https://agent.example/{number}")
        await stage.challenge()
    assert len(stage.sent("GET")) == 1

    fake_clock.advance(RECEIVER_LIST_CACHE_SECONDS)
    await stage.register("https://agent.example/later")
    await stage.challenge()

    assert len(stage.sent("GET")) == 2


async def test_where_nobody_answers_no_list_is_asked_for(still: Engine) -> None:
    stage = Proving(still, fails(httpx.ConnectError))
    await stage.register()

    await stage.challenge()

    assert stage.sent("GET") == []


async def test_by_default_only_subscriptions_of_mcp_clients_prove_themselves(still: Engine) -> None:
    stage = Proving(still, mode="mcp")

    born = [(await stage.register(origin=origin)).state for origin in (WebhookOrigin.REST, WebhookOrigin.CALL, WebhookOrigin.MCP)]

    assert born == [ACTIVE, ACTIVE, PENDING]
