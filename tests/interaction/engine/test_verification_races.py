"""Between a challenge and its answer: webhooks that move or go, processes that die, stores that cannot be written."""

import asyncio
from datetime import timedelta
from functools import partial

import httpx
import pytest

from ringback.domain.delivery import DeliveryState
from ringback.domain.verification import PROOF_VALID_SECONDS, Challenge
from ringback.domain.webhook import Webhook, WebhookState
from ringback.notifier.verifier import CHALLENGE_LEASE_SECONDS, SAME_URL_DELAY_SECONDS
from tests.support.builders import make_delivery, make_webhook
from tests.support.clock import START, FakeClock
from tests.support.engine import WAIT_SECONDS, Engine, wait_until
from tests.support.examples import ALICE, BOB, WEBHOOK
from tests.support.stores import FailingStore, StoreWithWaitingUnits
from tests.support.verifications import (
    VerificationHarness,
    answer_challenge,
    delivery_states,
    dispatch_all_due,
    respond_with,
)

URL = WEBHOOK.url
ACTIVE, PENDING = WebhookState.ACTIVE, WebhookState.PENDING_VERIFICATION
HELD = DeliveryState.HELD


@pytest.mark.requirement("R35")
async def test_a_challenge_whose_process_was_killed_is_taken_up_again(still: Engine, fake_clock: FakeClock) -> None:
    asked = asyncio.Event()

    async def hang(_: httpx.Request) -> httpx.Response:
        asked.set()
        return await asyncio.Future[httpx.Response]()

    stage = VerificationHarness(still, hang)
    webhook = await stage.register_webhook()
    victim = asyncio.create_task(stage.send_due_challenges())
    await asyncio.wait_for(asked.wait(), WAIT_SECONDS)
    victim.cancel()
    await asyncio.wait([victim])
    stage.answer, survivor = answer_challenge, stage.make_verifier()

    assert await survivor.run_once() == 0
    fake_clock.advance(CHALLENGE_LEASE_SECONDS)
    assert await survivor.run_once() == 1

    assert (await still.read_webhook(webhook.id)).state is ACTIVE


@pytest.mark.requirement("R34")
async def test_a_proven_webhook_whose_row_stays_locked_delays_no_challenge_of_another_principal(
    still: Engine, fake_clock: FakeClock
) -> None:
    """Its unit came before the next query, so every principal waited for the proof of a URL."""
    locked, stop = StoreWithWaitingUnits(still.store, "accept"), asyncio.Event()
    stage = VerificationHarness(still)
    _, second = [await stage.register_webhook(URL) for _ in range(2)]
    await stage.send_due_challenges()
    fake_clock.advance(SAME_URL_DELAY_SECONDS)
    still.store = locked

    async def is_waiting() -> bool:
        return locked.waiting > 0

    async def is_active(webhook: Webhook) -> bool:
        return (await still.read_webhook(webhook.id)).state is ACTIVE

    working = asyncio.create_task(stage.make_verifier().run(stop))
    await wait_until(is_waiting)
    other = await stage.register_webhook("https://bob.example/hook", principal=BOB)
    await wait_until(partial(is_active, other))
    assert not await is_active(second)
    locked.released.set()
    stop.set()
    await asyncio.wait_for(working, WAIT_SECONDS)

    assert await is_active(second)


async def test_a_new_url_is_proven_anew_and_what_waited_is_held_until_then(still: Engine) -> None:
    stage = VerificationHarness(still)
    webhook = await stage.register_webhook()
    await stage.send_due_challenges()
    await still.insert_deliveries(make_delivery(webhook_id=webhook.id))

    moved = await stage.change_webhook(webhook, url="https://new.example/hook")

    assert moved.state is PENDING
    assert await dispatch_all_due(still) == []
    assert await delivery_states(still) == {HELD}
    await stage.send_due_challenges()
    assert [request.url.host for request in await dispatch_all_due(still)] == ["new.example"]


async def test_a_proof_of_the_old_url_does_not_verify_the_new_one(still: Engine) -> None:
    stage = VerificationHarness(still)
    webhook = await stage.register_webhook()

    async def move_and_answer(request: httpx.Request) -> httpx.Response:
        await stage.change_webhook(webhook, url="https://new.example/hook")
        return answer_challenge(request)

    stage.answer = move_and_answer
    await stage.send_due_challenges()

    assert (await still.read_webhook(webhook.id)).state is PENDING
    stage.answer = respond_with(404)
    assert await stage.send_due_challenges() == 1
    assert stage.sent_requests()[-1].url.host == "new.example"


async def test_a_late_refusal_of_the_old_url_is_not_held_against_the_new_one(still: Engine) -> None:
    stage = VerificationHarness(still)
    webhook = await stage.register_webhook()

    async def move_and_refuse(_: httpx.Request) -> httpx.Response:
        await stage.change_webhook(webhook, url="https://new.example/hook")
        return httpx.Response(500)

    stage.answer = move_and_refuse
    await stage.send_due_challenges()

    assert (await still.read_webhook(webhook.id)).last_error is None


async def test_no_detour_leads_around_the_proof(still: Engine) -> None:
    stage = VerificationHarness(still)
    webhook = await stage.register_webhook()
    await stage.send_due_challenges()
    await stage.change_webhook(webhook, state=WebhookState.DISABLED)

    moved = await stage.change_webhook(webhook, url="https://victim.example/hook")
    assert moved.state is WebhookState.DISABLED
    switched_on = await stage.change_webhook(webhook, state=ACTIVE)

    assert switched_on.state is PENDING


async def test_a_suspended_webhook_that_moves_is_not_probed_before_it_has_proven_its_url(still: Engine) -> None:
    stage = VerificationHarness(still)
    webhook = await stage.register_webhook()
    await stage.send_due_challenges()
    await stage.change_webhook(webhook, state=WebhookState.SUSPENDED)

    assert (await stage.change_webhook(webhook, url="https://victim.example/hook")).state is PENDING


async def test_a_webhook_that_waits_and_moves_to_a_proven_url_is_active(still: Engine) -> None:
    stage = VerificationHarness(still, allowlist=["https://mine.example/"])
    webhook = await stage.register_webhook()

    assert (await stage.change_webhook(webhook, url="https://mine.example/hook")).state is ACTIVE
    assert await stage.send_due_challenges() == 0


async def test_a_webhook_that_was_removed_is_not_challenged(still: Engine) -> None:
    stage = VerificationHarness(still)
    webhook = await stage.register_webhook()
    await still.store.write(lambda tx: tx.webhooks.delete(webhook.id))

    assert await stage.send_due_challenges() == 0


async def test_the_janitor_removes_aged_proofs_and_challenge_counts_of_past_minutes(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = VerificationHarness(still)
    await stage.register_webhook()
    await stage.send_due_challenges()
    fake_clock.advance(PROOF_VALID_SECONDS + 1)

    await still.make_janitor().run_once()

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
        return answer_challenge(request)

    stage = VerificationHarness(still, fail_for_one)
    odd, well = (
        await stage.register_webhook("https://odd.example/"),
        await stage.register_webhook("https://well.example/"),
    )

    await stage.send_due_challenges()

    assert [(await still.read_webhook(each.id)).state for each in (odd, well)] == [PENDING, ACTIVE]
    assert [record.getMessage() for record in caplog.records if record.exc_info] == ["challenge.failed"]
    fake_clock.advance(CHALLENGE_LEASE_SECONDS)
    assert await stage.send_due_challenges() == 1


async def test_a_store_that_cannot_be_written_delays_a_challenge_and_loses_none(
    still: Engine, still_unsteady: FailingStore, fake_clock: FakeClock
) -> None:
    async def break_then_answer(request: httpx.Request) -> httpx.Response:
        still_unsteady.refusals = 1
        return answer_challenge(request)

    stage = VerificationHarness(still, break_then_answer)
    webhook = await stage.register_webhook()
    still_unsteady.refusals = 1

    assert await stage.send_due_challenges() == 0
    assert await stage.send_due_challenges() == 1  # its end cannot be written down
    assert (await still.read_webhook(webhook.id)).state is PENDING
    stage.answer = answer_challenge
    fake_clock.advance(CHALLENGE_LEASE_SECONDS)
    assert await stage.send_due_challenges() == 1
    assert (await still.read_webhook(webhook.id)).state is ACTIVE


async def test_a_url_that_the_operator_blocks_during_verification_is_not_challenged(still: Engine) -> None:
    stage = VerificationHarness(still)
    webhook = make_webhook(url="http://127.0.0.1:8000/hook", state=PENDING)
    await still.insert_webhooks(webhook)
    planned = Challenge(
        webhook_id=webhook.id, principal=ALICE, url=webhook.url, origin="http://127.0.0.1:8000", due_at=START
    )
    await still.store.write(lambda tx: tx.challenges.save(planned))

    await stage.send_due_challenges()

    assert stage.requests == []
    assert (await still.read_webhook(webhook.id)).last_error == "url_not_allowed"
