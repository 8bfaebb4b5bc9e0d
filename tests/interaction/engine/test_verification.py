"""Proof that a URL wants callbacks: challenged before anything is sent, in bounds, and whatever dies meanwhile."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final

import httpx
import orjson
import pytest

from ringback.domain.delivery import DeliveryState
from ringback.domain.errors import QuotaExceeded
from ringback.domain.principal import Principal
from ringback.domain.verification import PER_ORIGIN_MAX, PER_PRINCIPAL_MAX, PROOF_SECONDS, Challenge
from ringback.domain.webhook import Origin, Webhook, WebhookState
from ringback.notifier.consent import PUBLISHED_PATH, PUBLISHED_SECONDS
from ringback.notifier.httpx_sender import HttpxSender
from ringback.notifier.verifier import AT_ONCE, LADDER, LEASE_SECONDS, SAME_URL_SECONDS
from ringback.receiver import ReceiverApp
from ringback.signing.standard_webhooks import verify
from tests.support.builders import a_call, a_delivery, a_webhook
from tests.support.clock import START, FakeClock
from tests.support.engine import WAIT_SECONDS, Engine, UnsteadyStore, until
from tests.support.examples import ALICE, BOB, WEBHOOK
from tests.support.proving import Proving, answers_challenges

URL = WEBHOOK.url
SECRET = WEBHOOK.secrets[0].value
ACTIVE, PENDING = WebhookState.ACTIVE, WebhookState.PENDING_VERIFICATION
HELD = DeliveryState.HELD


def says(status: int, **answer: object) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(status, **answer)  # pyright: ignore[reportArgumentType] - httpx's own options


def fails(error: type[Exception]) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error("no")

    return answer


def publishes(*receivers: object) -> Callable[[httpx.Request], httpx.Response]:
    """A receiver that knows no challenges, at an origin that publishes a list."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == PUBLISHED_PATH:
            return httpx.Response(200, json={"receivers": receivers})
        return httpx.Response(404)

    return answer


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


async def states(engine: Engine) -> set[DeliveryState]:
    return {delivery.state for delivery in await engine.deliveries()}


async def dispatched(engine: Engine) -> list[httpx.Request]:
    """What goes out to receivers that take everything, until nothing more does."""
    sent: list[httpx.Request] = []

    def take(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(204)

    dispatcher = engine.dispatcher(take)
    while await dispatcher.run_once():
        pass
    return sent


# -- the challenge ----------------------------------------------------------------------------------------------------------


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
    for step in LADDER.steps_seconds:
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


# -- proofs that need no challenge ------------------------------------------------------------------------------------------


async def test_a_proof_serves_the_same_principal_at_the_same_url_for_a_while(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = Proving(still)
    await stage.register(URL)
    await stage.challenge()

    assert (await stage.register(URL)).state is ACTIVE
    assert (await stage.register(URL + "?other")).state is PENDING
    assert (await stage.register(URL, principal=BOB)).state is PENDING
    fake_clock.advance(PROOF_SECONDS)
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

    fake_clock.advance(PUBLISHED_SECONDS)
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

    born = [(await stage.register(origin=origin)).state for origin in (Origin.REST, Origin.CALL, Origin.MCP)]

    assert born == [ACTIVE, ACTIVE, PENDING]


# -- limits -----------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R26")
async def test_registrations_aimed_at_one_victim_reach_it_with_few_challenges_and_no_event(
    still: Engine, fake_clock: FakeClock, *, deep: bool
) -> None:
    stage = Proving(still, says(404))
    accepted: list[Webhook] = []
    for number in range(1000 if deep else 60):
        with suppress(QuotaExceeded):
            accepted.append(
                await stage.register(f"https://victim.example/{number}", principal=Principal(f"{number % 7}"))
            )
        await stage.challenge()
        fake_clock.advance(0.05)
    for number in range(7):
        await still.finish(a_call(principal=Principal(f"{number}")))

    assert len(accepted) <= PER_ORIGIN_MAX * (1 if not deep else 2)
    assert await dispatched(still) == []
    times = sorted(float(request.headers["webhook-timestamp"]) for request in stage.sent())
    assert all(later - first >= 60 for first, later in zip(times, times[PER_ORIGIN_MAX:], strict=False))


async def test_registrations_at_the_same_moment_are_limited_like_any_others(still: Engine) -> None:
    """None of their challenges is out yet."""
    stage = Proving(still)
    for number in range(PER_ORIGIN_MAX):
        await stage.register(f"https://victim.example/{number}")

    with pytest.raises(QuotaExceeded) as refused:
        await stage.register("https://victim.example/one-more")

    assert refused.value.extra["quota"] == "challenges_of_origin"
    assert refused.value.retry_after_seconds == 60
    assert len(await still.store.read(lambda tx: tx.webhooks.page(ALICE, before=None, limit=100))) == PER_ORIGIN_MAX


async def test_a_principal_may_not_knock_at_every_door(still: Engine) -> None:
    stage = Proving(still)
    for number in range(PER_PRINCIPAL_MAX):
        await stage.register(f"https://door-{number}.example/")

    with pytest.raises(QuotaExceeded) as refused:
        await stage.register("https://one-more.example/")

    assert refused.value.extra["quota"] == "challenges"
    assert (await stage.register("https://one-more.example/", principal=BOB)).state is PENDING


async def test_a_repeated_challenge_waits_for_the_limit_of_its_origin(still: Engine, fake_clock: FakeClock) -> None:
    stage = Proving(still, says(500))
    for number in range(PER_ORIGIN_MAX):
        await stage.register(f"https://victim.example/{number}")
    await stage.challenge()
    fake_clock.advance(LADDER.steps_seconds[0])

    assert await stage.challenge() == 0
    fake_clock.advance(60)
    assert await stage.challenge() == PER_ORIGIN_MAX


async def test_many_webhooks_at_one_url_are_proven_by_one_challenge(still: Engine, fake_clock: FakeClock) -> None:
    """Fifty calls that are started together, each with the same callback."""
    stage = Proving(still)
    webhooks = [await stage.register(URL) for _ in range(50)]

    for _ in range(4):
        await stage.challenge()
        fake_clock.advance(SAME_URL_SECONDS)
    await stage.challenge()

    assert {(await still.webhook(webhook.id)).state for webhook in webhooks} == {ACTIVE}
    assert len(stage.sent()) == 1


async def test_so_many_are_asked_at_once_and_the_next_when_one_has_answered(engine: Engine) -> None:
    inside, most, gate = 0, 0, asyncio.Event()

    async def hold(request: httpx.Request) -> httpx.Response:
        nonlocal inside, most
        inside, most = inside + 1, max(most, inside + 1)
        if inside == AT_ONCE:
            gate.set()
        await gate.wait()
        inside -= 1
        return answers_challenges(request)

    stage, stop = Proving(engine, hold), asyncio.Event()
    webhooks = [await stage.register(f"https://agent-{number}.example/") for number in range(AT_ONCE + 4)]
    work = asyncio.create_task(stage.verifier.run(stop))

    async def all_active() -> bool:
        return {(await engine.webhook(webhook.id)).state for webhook in webhooks} == {ACTIVE}

    await until(all_active)
    stop.set()
    await asyncio.wait_for(work, WAIT_SECONDS)

    assert most == AT_ONCE


# -- what happens meanwhile -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R35")
async def test_a_challenge_whose_process_was_killed_is_taken_up_again(still: Engine, fake_clock: FakeClock) -> None:
    asked = asyncio.Event()

    async def hang(_: httpx.Request) -> httpx.Response:
        asked.set()
        return await asyncio.Future[httpx.Response]()

    stage = Proving(still, hang)
    webhook = await stage.register()
    victim = asyncio.create_task(stage.challenge())
    await asyncio.wait_for(asked.wait(), WAIT_SECONDS)
    victim.cancel()
    await asyncio.wait([victim])
    stage.answer, survivor = answers_challenges, stage.another_verifier()

    assert await survivor.run_once() == 0
    fake_clock.advance(LEASE_SECONDS)
    assert await survivor.run_once() == 1

    assert (await still.webhook(webhook.id)).state is ACTIVE


async def test_a_new_url_is_proven_anew_and_what_waited_is_held_until_then(still: Engine) -> None:
    stage = Proving(still)
    webhook = await stage.register()
    await stage.challenge()
    await still.deliver(a_delivery(webhook_id=webhook.id))

    moved = await stage.change(webhook, url="https://new.example/hook")

    assert moved.state is PENDING
    assert await dispatched(still) == []
    assert await states(still) == {HELD}
    await stage.challenge()
    assert [request.url.host for request in await dispatched(still)] == ["new.example"]


async def test_what_the_old_url_answers_proves_nothing_for_the_new_one(still: Engine) -> None:
    stage = Proving(still)
    webhook = await stage.register()

    async def move_and_answer(request: httpx.Request) -> httpx.Response:
        await stage.change(webhook, url="https://new.example/hook")
        return answers_challenges(request)

    stage.answer = move_and_answer
    await stage.challenge()

    assert (await still.webhook(webhook.id)).state is PENDING
    stage.answer = says(404)
    assert await stage.challenge() == 1
    assert stage.sent()[-1].url.host == "new.example"


async def test_a_late_refusal_of_the_old_url_is_not_held_against_the_new_one(still: Engine) -> None:
    stage = Proving(still)
    webhook = await stage.register()

    async def move_and_refuse(_: httpx.Request) -> httpx.Response:
        await stage.change(webhook, url="https://new.example/hook")
        return httpx.Response(500)

    stage.answer = move_and_refuse
    await stage.challenge()

    assert (await still.webhook(webhook.id)).last_error is None


async def test_no_detour_leads_around_the_proof(still: Engine) -> None:
    stage = Proving(still)
    webhook = await stage.register()
    await stage.challenge()
    await stage.change(webhook, state=WebhookState.DISABLED)

    moved = await stage.change(webhook, url="https://victim.example/hook")
    assert moved.state is WebhookState.DISABLED
    switched_on = await stage.change(webhook, state=ACTIVE)

    assert switched_on.state is PENDING


async def test_a_suspended_webhook_that_moves_is_not_probed_before_it_has_proven_its_url(still: Engine) -> None:
    stage = Proving(still)
    webhook = await stage.register()
    await stage.challenge()
    await stage.change(webhook, state=WebhookState.SUSPENDED)

    assert (await stage.change(webhook, url="https://victim.example/hook")).state is PENDING


async def test_a_webhook_that_waits_and_moves_to_a_proven_url_is_active(still: Engine) -> None:
    stage = Proving(still, allowlist=["https://mine.example/"])
    webhook = await stage.register()

    assert (await stage.change(webhook, url="https://mine.example/hook")).state is ACTIVE
    assert await stage.challenge() == 0


async def test_a_webhook_that_was_removed_is_not_challenged(still: Engine) -> None:
    stage = Proving(still)
    webhook = await stage.register()
    await still.store.write(lambda tx: tx.webhooks.delete(webhook.id))

    assert await stage.challenge() == 0


async def test_the_janitor_forgets_proofs_that_have_aged_and_challenges_of_past_minutes(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = Proving(still)
    await stage.register()
    await stage.challenge()
    fake_clock.advance(PROOF_SECONDS + 1)

    await still.janitor().run_once()

    assert await still.store.read(lambda tx: tx.proofs.proven_at(ALICE, URL)) is None
    assert (
        await still.store.read(lambda tx: tx.challenges.asked(principal=ALICE, now=START + timedelta(seconds=1)))
    ).sent == 0


async def test_a_sender_that_fails_in_its_own_way_fails_no_other_challenge(
    still: Engine, fake_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_for_one(request: httpx.Request) -> httpx.Response:
        if request.url.host == "odd.example":
            raise RuntimeError("a bug of an egress")
        return answers_challenges(request)

    stage = Proving(still, fail_for_one)
    odd, well = await stage.register("https://odd.example/"), await stage.register("https://well.example/")

    await stage.challenge()

    assert [(await still.webhook(each.id)).state for each in (odd, well)] == [PENDING, ACTIVE]
    assert [record.getMessage() for record in caplog.records if record.exc_info] == ["challenge.failed"]
    fake_clock.advance(LEASE_SECONDS)
    assert await stage.challenge() == 1


async def test_a_store_that_cannot_be_written_delays_a_challenge_and_loses_none(
    still: Engine, still_unsteady: UnsteadyStore, fake_clock: FakeClock
) -> None:
    async def break_then_answer(request: httpx.Request) -> httpx.Response:
        still_unsteady.refusals = 1
        return answers_challenges(request)

    stage = Proving(still, break_then_answer)
    webhook = await stage.register()
    still_unsteady.refusals = 1

    assert await stage.challenge() == 0
    assert await stage.challenge() == 1  # its end cannot be written down
    assert (await still.webhook(webhook.id)).state is PENDING
    stage.answer = answers_challenges
    fake_clock.advance(LEASE_SECONDS)
    assert await stage.challenge() == 1
    assert (await still.webhook(webhook.id)).state is ACTIVE


async def test_a_url_that_the_operator_has_closed_meanwhile_is_not_asked(still: Engine) -> None:
    stage = Proving(still)
    webhook = a_webhook(url="http://127.0.0.1:8000/hook", state=PENDING)
    await still.register(webhook)
    planned = Challenge(
        webhook_id=webhook.id, principal=ALICE, url=webhook.url, origin="http://127.0.0.1:8000", due_at=START
    )
    await still.store.write(lambda tx: tx.challenges.put(planned))

    await stage.challenge()

    assert stage.requests == []
    assert (await still.webhook(webhook.id)).last_error == "connection_refused"
