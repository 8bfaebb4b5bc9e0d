"""Between a challenge and its answer: webhooks that move or go, processes that die, stores that cannot be written."""

import asyncio
from datetime import timedelta

import httpx
import pytest

from ringback.domain.delivery import DeliveryState
from ringback.domain.verification import PROOF_VALID_SECONDS, Challenge
from ringback.domain.webhook import WebhookState
from ringback.notifier.verifier import CHALLENGE_LEASE_SECONDS
from tests.support.builders import a_delivery, a_webhook
from tests.support.clock import START, FakeClock
from tests.support.engine import WAIT_SECONDS, Engine
from tests.support.examples import ALICE, WEBHOOK
from tests.support.proving import Proving, answers_challenges, dispatched, says, states
from tests.support.stores import UnsteadyStore

URL = WEBHOOK.url
ACTIVE, PENDING = WebhookState.ACTIVE, WebhookState.PENDING_VERIFICATION
HELD = DeliveryState.HELD


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
    fake_clock.advance(CHALLENGE_LEASE_SECONDS)
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
    fake_clock.advance(PROOF_VALID_SECONDS + 1)

    await still.janitor().run_once()

    assert await still.store.read(lambda tx: tx.proofs.get_proven_at(ALICE, URL)) is None
    assert (
        await still.store.read(lambda tx: tx.challenges.count_recent(principal=ALICE, now=START + timedelta(seconds=1)))
    ).sent_count == 0


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
    fake_clock.advance(CHALLENGE_LEASE_SECONDS)
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
    fake_clock.advance(CHALLENGE_LEASE_SECONDS)
    assert await stage.challenge() == 1
    assert (await still.webhook(webhook.id)).state is ACTIVE


async def test_a_url_that_the_operator_has_closed_meanwhile_is_not_asked(still: Engine) -> None:
    stage = Proving(still)
    webhook = a_webhook(url="http://127.0.0.1:8000/hook", state=PENDING)
    await still.register(webhook)
    planned = Challenge(
        webhook_id=webhook.id, principal=ALICE, url=webhook.url, origin="http://127.0.0.1:8000", due_at=START
    )
    await still.store.write(lambda tx: tx.challenges.save(planned))

    await stage.challenge()

    assert stage.requests == []
    assert (await still.webhook(webhook.id)).last_error == "connection_refused"
