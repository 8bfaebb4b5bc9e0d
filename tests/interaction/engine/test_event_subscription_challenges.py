"""A subscription is made once its callback has answered a challenge, and not without the right to it."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import orjson
import pytest

from ringback.domain.principal import Scope
from ringback.domain.verification import CHALLENGES_PER_ORIGIN_AND_PRINCIPAL_MAX
from ringback.domain.webhook import SUBSCRIBE_GRACE_SECONDS, WebhookState
from ringback.protocol.mcp_events.errors import CallbackFailure, EventError, EventErrorName
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.examples import BOB
from tests.support.interleaving import open_nodes
from tests.support.stores import FOREVER, FailingStore
from tests.support.subscriptions import CLIENT, HOOK, SubscriptionStage, make_request
from tests.support.verifications import answer_challenge, dispatch_all_due, raise_error, respond_with


async def test_the_challenge_is_answered_before_anything_is_stored(still: Engine) -> None:
    stored: list[int] = []

    async def note_rows_and_answer(request: httpx.Request) -> httpx.Response:
        stored.append(await stage.count_live())
        return httpx.Response(200, json={"challenge": orjson.loads(request.content)["challenge"]})

    stage = SubscriptionStage(still, note_rows_and_answer)

    grant = await stage.subscribe()

    assert stored == [0]
    (challenge,) = stage.requests
    assert str(challenge.url) == HOOK
    assert challenge.headers["x-mcp-subscription-id"] == grant.id
    assert challenge.headers["webhook-id"].startswith("msg_verification_")
    webhook = await stage.read_webhook(grant)
    assert webhook is not None
    assert webhook.state is WebhookState.ACTIVE
    assert await stage.count_live() == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (respond_with(200, json={"challenge": "another"}), CallbackFailure.CHALLENGE_FAILED),
        (respond_with(404), CallbackFailure.HTTP_4XX),
        pytest.param(
            respond_with(302, headers={"location": "https://elsewhere.example/"}),
            CallbackFailure.HTTP_4XX,
            id="a redirect",
        ),
        (respond_with(503), CallbackFailure.HTTP_5XX),
        (raise_error(httpx.ConnectError), CallbackFailure.CONNECTION_REFUSED),
        (raise_error(httpx.ReadTimeout), CallbackFailure.TIMEOUT),
    ],
)
async def test_a_callback_that_fails_its_challenge_leaves_nothing(
    still: Engine, answer: object, reason: CallbackFailure
) -> None:
    stage = SubscriptionStage(still, answer)  # pyright: ignore[reportArgumentType] - each is a responder

    with pytest.raises(EventError) as refused:
        await stage.subscribe()

    assert refused.value.name is EventErrorName.CALLBACK_ENDPOINT_ERROR
    assert refused.value.data == {"reason": str(reason)}
    assert "elsewhere" not in refused.value.message
    assert await stage.count_live() == 0
    assert await still.read_deliveries() == []
    with pytest.raises(EventError) as unknown:
        await stage.unsubscribe()
    assert unknown.value.data == {"kind": "subscription"}


async def test_one_challenge_proves_a_url_for_all_arguments_of_its_principal_only(still: Engine) -> None:
    stage = SubscriptionStage(still)

    await stage.subscribe(arguments={"tool": "a"})
    await stage.subscribe(arguments={"tool": "b"})
    await stage.subscribe("call.progress")
    assert len(stage.requests) == 1
    await stage.subscribe(caller=replace(CLIENT, principal=BOB))
    await stage.subscribe(url=f"{HOOK}?mcp_event_subscription=1")

    assert len(stage.requests) == 3


async def test_a_client_that_starts_may_subscribe_with_many_new_urls_at_once(still: Engine) -> None:
    stage = SubscriptionStage(still)

    grants = await asyncio.gather(*(stage.subscribe(url=f"{HOOK}?mcp_event_subscription={n}") for n in range(15)))

    assert len({grant.id for grant in grants}) == 15
    assert await stage.count_live() == 15


async def test_receivers_that_do_not_answer_are_challenged_a_few_times_a_minute_at_most(still: Engine) -> None:
    stage = SubscriptionStage(still, respond_with(200))

    reasons: list[str] = []
    for number in range(CHALLENGES_PER_ORIGIN_AND_PRINCIPAL_MAX + 2):
        with pytest.raises(EventError) as refused:
            await stage.subscribe(url=f"{HOOK}/{number}")
        reasons.append(refused.value.name)

    challenges = [each for each in stage.requests if each.method == "POST"]
    assert len(challenges) == CHALLENGES_PER_ORIGIN_AND_PRINCIPAL_MAX
    assert reasons[-1] == EventErrorName.RESOURCE_EXHAUSTED


async def test_a_quota_is_checked_before_the_challenge(still: Engine) -> None:
    stage = SubscriptionStage(still, subscriptions_max=1)
    await stage.subscribe()

    with pytest.raises(EventError) as refused:
        await stage.subscribe(url=f"{HOOK}/second")

    assert refused.value.name is EventErrorName.RESOURCE_EXHAUSTED
    assert refused.value.data is not None
    assert (refused.value.data["limit"], refused.value.data["max"]) == ("subscriptions", 1)
    assert len(stage.requests) == 1
    await stage.subscribe()
    await stage.unsubscribe()
    await stage.subscribe(url=f"{HOOK}/second")


async def test_a_caller_without_the_scope_or_the_upstream_is_forbidden(still: Engine) -> None:
    stage = SubscriptionStage(still)
    reader = replace(CLIENT, scopes=frozenset({Scope.READ}))
    limited = replace(CLIENT, upstreams=frozenset({"time"}))

    for refused_subscribe in (
        stage.subscribe(caller=reader),
        stage.subscribe(caller=limited, arguments={"upstream": "git"}),
    ):
        with pytest.raises(EventError) as refused:
            await refused_subscribe
        assert refused.value.name is EventErrorName.FORBIDDEN

    assert stage.requests == []


async def test_an_upstream_that_is_not_there_looks_like_one_that_is_forbidden(still: Engine) -> None:
    stage = SubscriptionStage(still)

    with pytest.raises(EventError) as refused:
        await stage.subscribe("upstream.changed", arguments={"upstream": "nowhere"})

    assert refused.value.name is EventErrorName.FORBIDDEN
    assert stage.requests == []


async def test_a_store_that_fails_after_the_challenge_leaves_nothing_half_made(
    still: Engine, still_unsteady: FailingStore
) -> None:
    def fail_from_now_on(request: httpx.Request) -> httpx.Response:
        still_unsteady.refusals = FOREVER
        return httpx.Response(200, json={"challenge": orjson.loads(request.content)["challenge"]})

    stage = SubscriptionStage(still, fail_from_now_on)

    with pytest.raises(EventError) as refused:
        await stage.subscribe()

    still_unsteady.refusals = 0
    assert refused.value.name is EventErrorName.INTERNAL_ERROR
    assert await stage.count_live() == 0
    stage.answer = answer_challenge
    assert (await stage.subscribe()).delivery_status is None


@pytest.mark.parametrize("url", ["https://127.0.0.1:1/hook", "https://[::1]:1/hook", "https://169.254.169.254/latest"])
async def test_an_address_that_is_not_public_gets_no_challenge(tmp_path: Path, fake_clock: FakeClock, url: str) -> None:
    async with open_nodes(tmp_path, fake_clock, callback_private_cidrs=(), callback_http=False) as nodes:
        request = make_request(url=url)
        with pytest.raises(EventError) as refused:
            await nodes.first.services.event_subscriptions.subscribe(CLIENT, request)

    assert refused.value.name is EventErrorName.CALLBACK_ENDPOINT_ERROR
    assert refused.value.data == {"reason": "connection_refused"}
    assert "169.254" not in refused.value.message


async def test_a_slow_challenge_takes_nothing_of_the_lifetime_and_of_the_grace(
    still: Engine, fake_clock: FakeClock
) -> None:
    start = (await SubscriptionStage(still).subscribe(url=f"{HOOK}/start")).cursor
    fake_clock.advance(60)
    await still.finish_call(make_call())
    await dispatch_all_due(still)

    def answer_slowly(request: httpx.Request) -> httpx.Response:
        fake_clock.advance(5)
        return answer_challenge(request)

    grant = await SubscriptionStage(still, answer_slowly).subscribe(cursor=start)

    assert grant.refresh_before == fake_clock.now() + timedelta(days=1)
    assert await dispatch_all_due(still) == []
    fake_clock.advance(SUBSCRIBE_GRACE_SECONDS)
    assert len(await dispatch_all_due(still)) == 1
