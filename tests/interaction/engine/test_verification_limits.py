"""Challenges are requests to unproven URLs, so they are counted: per origin, per principal, per URL, and at once."""

import asyncio
from contextlib import suppress

import httpx
import pytest

from ringback.domain.errors import QuotaExceeded
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.verification import CHALLENGES_PER_ORIGIN_AND_PRINCIPAL_MAX as SHARE
from ringback.domain.verification import CHALLENGES_PER_ORIGIN_MAX, CHALLENGES_PER_PRINCIPAL_MAX
from ringback.domain.webhook import Webhook, WebhookState
from ringback.notifier import verifier
from ringback.notifier.verifier import CHALLENGE_SCHEDULE, CHALLENGES_IN_FLIGHT_MAX, SAME_URL_DELAY_SECONDS
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.engine import WAIT_SECONDS, Engine, wait_until
from tests.support.examples import ALICE, BOB, WEBHOOK
from tests.support.verifications import VerificationHarness, answer_challenge, dispatch_all_due, respond_with

URL = WEBHOOK.url
ACTIVE, PENDING = WebhookState.ACTIVE, WebhookState.PENDING_VERIFICATION


@pytest.mark.requirement("R26")
async def test_registrations_aimed_at_one_victim_reach_it_with_few_challenges_and_no_event(
    still: Engine, fake_clock: FakeClock, *, deep: bool
) -> None:
    stage = VerificationHarness(still, respond_with(404))
    accepted: list[Webhook] = []
    for number in range(1000 if deep else 60):
        with suppress(QuotaExceeded):
            accepted.append(
                await stage.register_webhook(f"https://victim.example/{number}", principal=Principal(f"{number % 7}"))
            )
        await stage.send_due_challenges()
        fake_clock.advance(0.05)
    for number in range(7):
        await still.finish_call(make_call(principal=Principal(f"{number}")))

    assert len(accepted) <= CHALLENGES_PER_ORIGIN_MAX * (1 if not deep else 2)
    assert await dispatch_all_due(still) == []
    times = sorted(float(request.headers["webhook-timestamp"]) for request in stage.sent_requests())
    assert all(later - first >= 60 for first, later in zip(times, times[CHALLENGES_PER_ORIGIN_MAX:], strict=False))


async def test_an_unknown_error_of_the_store_costs_no_challenge_of_another_webhook(
    still: Engine, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = VerificationHarness(still)
    monkeypatch.setattr(verifier, "CHALLENGES_IN_FLIGHT_MAX", 2)
    proven = await stage.register_webhook("https://one.example/hook")
    await stage.register_webhook("https://two.example/hook")
    is_recorded = False

    async def fail_to_record_proof(_tx: Transaction, webhook: Webhook) -> bool:
        nonlocal is_recorded
        if webhook.id == proven.id and is_recorded:
            raise RuntimeError("a bug")
        is_recorded |= webhook.id == proven.id
        return webhook.id == proven.id

    with monkeypatch.context() as patched:
        patched.setattr(verifier, "is_proven", fail_to_record_proof)
        assert await stage.send_due_challenges() == 1
    fake_clock.advance(3600.0)

    assert await stage.send_due_challenges() == 1


async def test_registrations_whose_challenges_are_not_sent_yet_are_limited_too(still: Engine) -> None:
    """None of their challenges is out yet."""
    stage = VerificationHarness(still)
    for number in range(SHARE):
        await stage.register_webhook(f"https://victim.example/{number}")

    with pytest.raises(QuotaExceeded) as refused:
        await stage.register_webhook("https://victim.example/one-more")

    assert refused.value.extra["quota"] == "challenges_of_origin"
    assert refused.value.retry_after_seconds == 60
    assert len(await still.store.read(lambda tx: tx.webhooks.list_page(ALICE, None, position=None, limit=100))) == SHARE


async def test_one_principal_leaves_the_others_challenges_of_a_shared_origin(still: Engine) -> None:
    stage = VerificationHarness(still, respond_with(404))
    for number in range(SHARE):
        await stage.register_webhook(f"https://shared.example/{number}")
    await stage.send_due_challenges()

    with pytest.raises(QuotaExceeded):
        await stage.register_webhook("https://shared.example/one-more")
    assert (await stage.register_webhook("https://shared.example/bob", principal=BOB)).state is PENDING
    assert await stage.send_due_challenges() == 1


async def test_all_principals_together_have_a_limited_number_of_challenges_of_an_origin(still: Engine) -> None:
    stage = VerificationHarness(still)
    for number in range(CHALLENGES_PER_ORIGIN_MAX):
        await stage.register_webhook(f"https://victim.example/{number}", principal=Principal(f"{number // SHARE}"))

    with pytest.raises(QuotaExceeded):
        await stage.register_webhook("https://victim.example/one-more", principal=BOB)


async def test_a_principal_has_a_limited_number_of_challenges(still: Engine) -> None:
    stage = VerificationHarness(still)
    for number in range(CHALLENGES_PER_PRINCIPAL_MAX):
        await stage.register_webhook(f"https://receiver-{number}.example/")

    with pytest.raises(QuotaExceeded) as refused:
        await stage.register_webhook("https://one-more.example/")

    assert refused.value.extra["quota"] == "challenges"
    assert (await stage.register_webhook("https://one-more.example/", principal=BOB)).state is PENDING


async def test_a_repeated_challenge_waits_for_the_limit_of_its_origin(still: Engine, fake_clock: FakeClock) -> None:
    stage = VerificationHarness(still, respond_with(500))
    for number in range(SHARE):
        await stage.register_webhook(f"https://victim.example/{number}")
    await stage.send_due_challenges()
    fake_clock.advance(CHALLENGE_SCHEDULE.delays_seconds[0])

    assert await stage.send_due_challenges() == 0
    fake_clock.advance(60)
    assert await stage.send_due_challenges() == SHARE


async def test_many_webhooks_at_one_url_are_proven_by_one_challenge(still: Engine, fake_clock: FakeClock) -> None:
    """Fifty calls that are started together, each with the same callback."""
    stage = VerificationHarness(still)
    webhooks = [await stage.register_webhook(URL) for _ in range(50)]

    for _ in range(4):
        await stage.send_due_challenges()
        fake_clock.advance(SAME_URL_DELAY_SECONDS)
    await stage.send_due_challenges()

    assert {(await still.read_webhook(webhook.id)).state for webhook in webhooks} == {ACTIVE}
    assert len(stage.sent_requests()) == 1


async def test_challenges_in_flight_are_limited_and_the_next_starts_when_one_ends(engine: Engine) -> None:
    inside, most, gate = 0, 0, asyncio.Event()

    async def hold(request: httpx.Request) -> httpx.Response:
        nonlocal inside, most
        inside, most = inside + 1, max(most, inside + 1)
        if inside == CHALLENGES_IN_FLIGHT_MAX:
            gate.set()
        await gate.wait()
        inside -= 1
        return answer_challenge(request)

    stage, stop = VerificationHarness(engine, hold), asyncio.Event()
    webhooks = [
        await stage.register_webhook(f"https://agent-{number}.example/")
        for number in range(CHALLENGES_IN_FLIGHT_MAX + 4)
    ]
    work = asyncio.create_task(stage.verifier.run(stop))

    async def all_active() -> bool:
        return {(await engine.read_webhook(webhook.id)).state for webhook in webhooks} == {ACTIVE}

    await wait_until(all_active)
    stop.set()
    await asyncio.wait_for(work, WAIT_SECONDS)

    assert most == CHALLENGES_IN_FLIGHT_MAX
