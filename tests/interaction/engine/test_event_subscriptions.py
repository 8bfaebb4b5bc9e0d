"""An MCP client subscribes to events by webhook, refreshes, and unsubscribes (mcp-events §6)."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import orjson
import pytest

from ringback.domain.delivery import DeliveryState
from ringback.domain.principal import OIDC_PRINCIPAL_PREFIX, Principal, Scope
from ringback.domain.verification import CHALLENGES_PER_ORIGIN_AND_PRINCIPAL_MAX
from ringback.domain.webhook import PREVIOUS_SECRETS_MAX, SUBSCRIBE_GRACE_SECONDS, WebhookState
from ringback.domain.webhook_rows import WebhookPart
from ringback.protocol.mcp_events.errors import CallbackFailure, EventError, EventErrorName
from ringback.protocol.mcp_events.grants import TtlPolicy, TtlRequest
from ringback.services.erasures import Erasures
from ringback.services.lifecycle import Lifecycle
from ringback.services.login_revocations import LoginRevocations
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.examples import ALICE, BOB
from tests.support.interleaving import open_nodes
from tests.support.login_flow import ScriptedLoginFlow
from tests.support.stores import FOREVER, FailingStore
from tests.support.subscriptions import CLIENT, HOOK, OTHER_SECRET, SECRET, SubscriptionStage, make_request
from tests.support.verifications import answer_challenge, dispatch_all_due, raise_error, respond_with

DAY_SECONDS = 86_400.0


async def test_a_new_subscription_gets_the_events_after_it_and_an_id_that_a_restart_keeps(
    still: Engine, fake_clock: FakeClock
) -> None:
    await still.finish_call(make_call())
    stage = SubscriptionStage(still)

    grant = await stage.subscribe(arguments={"tool": "git_log"})

    assert grant.id.startswith("sub_")
    assert grant.refresh_before == fake_clock.now() + timedelta(days=1)
    assert not grant.truncated
    assert grant.delivery_status is None
    fake_clock.advance(SUBSCRIBE_GRACE_SECONDS)
    await still.finish_call(make_call(tool="git_diff"))
    heard = await still.finish_call(make_call())
    (request,) = await dispatch_all_due(still)
    assert request.headers["x-mcp-subscription-id"] == grant.id
    assert orjson.loads(request.content)["data"]["call_id"] == heard.id
    again = await SubscriptionStage(still).subscribe(arguments={"tool": "git_log"})
    assert again.id == grant.id


async def test_the_totals_count_live_subscriptions(still: Engine) -> None:
    stage = SubscriptionStage(still)

    for tool in ("git_log", "git_diff", "git_log"):
        await stage.subscribe(arguments={"tool": tool})

    assert (await still.store.read(lambda tx: tx.usage.count_totals())).subscriptions == 2


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


async def test_the_same_key_twice_at_once_makes_one_subscription(still: Engine) -> None:
    stage, other_node = SubscriptionStage(still), SubscriptionStage(still)

    grants = await asyncio.gather(*(each.subscribe(secret=SECRET) for each in (stage, other_node) for _ in range(4)))

    assert len({grant.id for grant in grants}) == 1
    assert await stage.count_live() == 1


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


async def test_no_delivery_leaves_before_the_client_has_the_result(still: Engine, fake_clock: FakeClock) -> None:
    stage = SubscriptionStage(still)
    old = await stage.subscribe(url=f"{HOOK}/old")
    await still.finish_call(make_call())
    await stage.subscribe(cursor=old.cursor)

    assert await dispatch_all_due(still) == []
    fake_clock.advance(SUBSCRIBE_GRACE_SECONDS)

    assert len(await dispatch_all_due(still)) == 2


async def test_a_cursor_replays_and_a_maximum_age_skips(still: Engine, fake_clock: FakeClock) -> None:
    stage = SubscriptionStage(still)
    start = (await stage.subscribe(url=f"{HOOK}/other")).cursor
    for _ in range(3):
        await still.finish_call(make_call())
        fake_clock.advance(60)

    whole = await stage.subscribe(cursor=start)
    half = await stage.subscribe(url=f"{HOOK}/half", cursor=start, max_age_seconds=90)
    ignored = await stage.subscribe(url=f"{HOOK}/ignored", max_age_seconds=1)

    assert (whole.truncated, half.truncated, ignored.truncated) == (False, True, False)
    assert whole.cursor == start
    replayed = [each.webhook_id for each in await still.read_deliveries()]
    assert [replayed.count(each.id) for each in (whole, half, ignored)] == [3, 1, 0]  # pyright: ignore[reportArgumentType]


async def test_an_unknown_cursor_starts_now_and_says_truncated(still: Engine) -> None:
    stage = SubscriptionStage(still)
    await still.finish_call(make_call())

    grant = await stage.subscribe(cursor="no cursor of ours")

    assert grant.truncated
    assert grant.cursor == (await stage.subscribe(url=f"{HOOK}/now")).cursor
    assert await still.read_deliveries() == []


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


async def test_unsubscribing_succeeds_for_a_month_after_the_end_and_never_for_foreign_keys(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = SubscriptionStage(still)
    await stage.subscribe(arguments={"tool": "git_log", "upstream": "git"})
    await still.finish_call(make_call())

    await stage.unsubscribe(arguments={"upstream": "git", "tool": "git_log"})
    await stage.unsubscribe(arguments={"upstream": "git", "tool": "git_log"})

    assert {each.state for each in await still.read_deliveries()} == {DeliveryState.CANCELLED}
    await still.finish_call(make_call())
    assert len(await still.read_deliveries()) == 1
    for foreign in (
        stage.unsubscribe(arguments={"tool": "git_log"}),
        stage.unsubscribe(
            caller=replace(CLIENT, principal=BOB),
            arguments={"upstream": "git", "tool": "git_log"},
        ),
    ):
        with pytest.raises(EventError) as refused:
            await foreign
        assert (refused.value.name, refused.value.data) == (EventErrorName.NOT_FOUND, {"kind": "subscription"})
    fake_clock.advance(30 * DAY_SECONDS)
    with pytest.raises(EventError):
        await stage.unsubscribe(arguments={"upstream": "git", "tool": "git_log"})
    fake_clock.advance(1)
    await still.run_recovery()
    assert await still.store.read(lambda tx: tx.subscriptions.count_live(ALICE)) == 0


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


async def test_a_subscription_to_one_call_replays_that_call_only(still: Engine, fake_clock: FakeClock) -> None:
    stage = SubscriptionStage(still)
    start = (await stage.subscribe(url=f"{HOOK}/start")).cursor
    fake_clock.advance(60)
    mine, _ = await still.finish_call(make_call()), await still.finish_call(make_call())
    await dispatch_all_due(still)

    await stage.subscribe(arguments={"call_id": mine.id}, cursor=start)
    fake_clock.advance(60)

    (request,) = await dispatch_all_due(still)
    assert orjson.loads(request.content)["data"]["call_id"] == mine.id


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


async def test_the_erasure_of_a_principal_leaves_no_subscription(still: Engine) -> None:
    stage = SubscriptionStage(still)
    grant = await stage.subscribe(arguments={"correlation_id": "secret"})
    erasures = Erasures(
        store=still.store,
        ids=still.ids,
        recorder=still.recorder,
        lifecycle=Lifecycle(),
        revocations=LoginRevocations(ScriptedLoginFlow()),
    )
    operator = replace(CLIENT, principal=Principal("operator"), scopes=frozenset({Scope.ADMIN}))

    await erasures.erase_principal(operator, ALICE, cancel=True)
    await still.run_recovery()

    assert await stage.read_webhook(grant) is None
    tombstone = await stage.read_subscription(grant)
    assert tombstone is not None
    assert (tombstone.arguments, tombstone.event_name) == ("", "")
    assert await stage.count_live() == 0


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
