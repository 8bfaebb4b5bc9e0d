"""Which webhooks have permits now, and which wait for one."""

from dataclasses import replace
from datetime import timedelta

import pytest

from ringback.domain.circuit_breaker import CLOSED_BREAKER, CircuitBreaker
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, WebhookState
from ringback.notifier import known_breakers
from ringback.notifier.concurrency_limiter import (
    BLOCKED_RECHECK_SECONDS,
    RECHECK_AFTER_SECONDS,
    ConcurrencyLimiter,
    ConcurrencyLimits,
)
from ringback.notifier.permits import ReceiverKey
from tests.support.builders import make_verified_webhook, make_webhook
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

HERE, THERE = "https://here.example", "https://there.example"
LATER = START + timedelta(seconds=15)
OPEN = CircuitBreaker(failures=10, openings=1, paused_until=LATER)


@pytest.fixture
def limiter() -> ConcurrencyLimiter:
    return ConcurrencyLimiter(ConcurrencyLimits(in_flight_max=20, per_receiver_max=4, per_origin_max=10))


def acquire_permits(limiter: ConcurrencyLimiter, webhook: Webhook, count: int, origin: str = HERE) -> None:
    for _ in range(count):
        limiter.acquire_permit(webhook, origin, now=START)


def available_permits(limiter: ConcurrencyLimiter, webhook: Webhook, origin: str = HERE) -> int:
    return limiter.available_permits(webhook, origin, now=START)


def test_the_webhooks_of_a_principal_at_one_origin_share_its_permits(limiter: ConcurrencyLimiter) -> None:
    one, other, foreign = (
        make_verified_webhook(),
        make_verified_webhook(),
        make_verified_webhook(principal=Principal("bob")),
    )
    acquire_permits(limiter, one, 3)

    assert (
        available_permits(limiter, one),
        available_permits(limiter, other),
        available_permits(limiter, other, THERE),
        available_permits(limiter, foreign),
    ) == (1, 1, 4, 4)


def test_an_origin_shares_its_permits_between_principals(limiter: ConcurrencyLimiter) -> None:
    for number in range(3):
        acquire_permits(limiter, make_verified_webhook(principal=Principal(f"tenant-{number}")), 3)

    assert available_permits(limiter, make_verified_webhook()) == 1


def test_a_full_origin_has_no_permits_until_one_is_released(limiter: ConcurrencyLimiter) -> None:
    webhooks = [(make_verified_webhook(), f"https://{number}.example") for number in range(5)]
    permits = [limiter.acquire_permit(webhook, origin, now=START) for webhook, origin in webhooks for _ in range(4)]
    assert (limiter.free_permits(), limiter.in_flight) == (0, 20)
    assert available_permits(limiter, make_verified_webhook()) == 0

    limiter.release_permit(permits[0])

    assert available_permits(limiter, make_verified_webhook()) == 1


@pytest.mark.parametrize("over", [{}, {"last_delivery_at": START, "failing_since": START}], ids=["new", "failing"])
def test_on_trial_one_attempt_goes_at_a_time(limiter: ConcurrencyLimiter, over: dict[str, object]) -> None:
    webhook = make_webhook(**over)
    assert available_permits(limiter, webhook) == 1

    acquire_permits(limiter, webhook, 1)

    assert available_permits(limiter, webhook) == 0
    assert available_permits(limiter, make_verified_webhook()) == 3


@pytest.mark.parametrize("state", WebhookState)
def test_nothing_is_sent_to_a_webhook_that_is_switched_off_or_not_proven(
    limiter: ConcurrencyLimiter, state: WebhookState
) -> None:
    may = state in {WebhookState.ACTIVE, WebhookState.SUSPENDED}

    assert available_permits(limiter, make_verified_webhook(state=state)) == (4 if may else 0)


def test_an_open_breaker_leaves_no_share_and_a_half_open_one_a_single_probe(limiter: ConcurrencyLimiter) -> None:
    webhook = make_webhook(breaker=OPEN, failing_since=START)

    assert limiter.available_permits(webhook, HERE, now=START) == 0
    assert limiter.available_permits(webhook, HERE, now=LATER) == 1


def test_an_origins_breaker_speaks_for_every_webhook_there(limiter: ConcurrencyLimiter) -> None:
    limiter.update_origin_breakers({HERE: OPEN}, now=START)

    assert (
        available_permits(limiter, make_verified_webhook()),
        available_permits(limiter, make_verified_webhook(), THERE),
    ) == (0, 4)
    assert limiter.available_permits(make_verified_webhook(), HERE, now=LATER) == 1
    limiter.acquire_permit(make_verified_webhook(), HERE, now=LATER)
    assert limiter.available_permits(make_verified_webhook(), HERE, now=LATER) == 0

    limiter.update_origin_breakers({HERE: CLOSED_BREAKER}, now=LATER)
    assert not limiter.has_failed_origin(HERE)
    assert limiter.available_permits(make_verified_webhook(), HERE, now=LATER) == 0, (
        "its backlog begins with one at a time"
    )
    assert available_permits(limiter, make_verified_webhook(), THERE) == 4


def test_a_principals_breaker_at_an_origin_stops_its_webhooks_there_and_nobody_elses(
    limiter: ConcurrencyLimiter,
) -> None:
    bobs = make_verified_webhook(principal=BOB)
    limiter.update_origin_breakers({ReceiverKey(ALICE, HERE).breaker_key: OPEN}, now=START)

    assert (
        available_permits(limiter, make_verified_webhook()),
        available_permits(limiter, make_verified_webhook(), THERE),
        available_permits(limiter, bobs),
    ) == (0, 4, 4)
    limiter.acquire_permit(make_verified_webhook(), HERE, now=LATER)
    assert limiter.available_permits(make_verified_webhook(), HERE, now=LATER) == 0, "one probe is on its way"
    assert limiter.available_permits(bobs, HERE, now=LATER) == 4


def test_an_origin_is_probed_by_the_principal_with_the_fewest_failures_and_with_a_healthy_webhook(
    limiter: ConcurrencyLimiter,
) -> None:
    healthy, new, failing = make_verified_webhook(), make_webhook(), make_webhook(failing_since=START)
    bobs = make_webhook(principal=BOB, failing_since=START)
    assert limiter.get_probe_turn(failing, HERE) == limiter.get_probe_turn(bobs, HERE)

    limiter.update_origin_breakers(
        {HERE: OPEN, ReceiverKey(ALICE, HERE).breaker_key: CircuitBreaker(failures=1)}, now=START
    )

    probes = sorted([failing, new, healthy, bobs], key=lambda each: limiter.get_probe_turn(each, HERE))
    assert probes == [bobs, healthy, new, failing]


def test_attempts_that_hang_after_one_principals_outage_leave_the_others_of_the_origin_their_permits(
    limiter: ConcurrencyLimiter,
) -> None:
    alices, bobs = make_webhook(breaker=OPEN, failing_since=START), make_verified_webhook(principal=BOB)
    limiter.backlogs.follow_outage(alices, HERE, now=START)
    limiter.backlogs.follow_outage(replace(alices, breaker=CLOSED_BREAKER), HERE, now=LATER)

    limiter.acquire_permit(make_webhook(), HERE, now=LATER)

    assert limiter.available_permits(make_webhook(), HERE, now=LATER) == 0
    assert limiter.available_permits(bobs, HERE, now=LATER) == 1


def test_the_origin_whose_breaker_was_read_longest_ago_is_dropped_at_the_limit(
    limiter: ConcurrencyLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls with a dead host each would fill the memory."""
    monkeypatch.setattr(known_breakers, "KNOWN_BREAKERS_MAX", 2)
    origins = [f"https://dead-{number}" for number in range(3)]
    limiter.update_origin_breakers(dict.fromkeys(origins[:2], OPEN), now=START)

    limiter.update_origin_breakers({origins[0]: OPEN}, now=START)
    limiter.update_origin_breakers({origins[2]: OPEN}, now=START)

    assert [limiter.has_failed_origin(origin) for origin in origins] == [True, False, True]


def test_a_principal_with_many_dead_hosts_pushes_out_no_breaker_of_another_principal(
    limiter: ConcurrencyLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New callbacks of the other principal went to its receiver again that hangs, and the end of an outage was not noticed."""
    monkeypatch.setattr(known_breakers, "KNOWN_BREAKERS_MAX", 8)
    bobs = ReceiverKey(BOB, HERE).breaker_key
    limiter.update_origin_breakers({THERE: OPEN, bobs: OPEN}, now=START)

    for number in range(20):
        origin = f"https://dead-{number}"
        failed = {origin: CircuitBreaker(failures=1), ReceiverKey(ALICE, origin).breaker_key: OPEN}
        limiter.update_origin_breakers(failed, now=START)

    assert available_permits(limiter, make_verified_webhook(principal=BOB)) == 0
    assert available_permits(limiter, make_verified_webhook(principal=BOB), THERE) == 0
    last, first = (f"https://dead-{number}" for number in (19, 0))
    assert limiter.has_failed_origin(ReceiverKey(ALICE, last).breaker_key)
    assert not limiter.has_failed_origin(ReceiverKey(ALICE, first).breaker_key)


def test_an_origin_whose_breaker_opens_and_closes_is_known_as_it_is(
    limiter: ConcurrencyLimiter,
) -> None:
    for breaker in (CircuitBreaker(failures=9), OPEN, CircuitBreaker(failures=1), CLOSED_BREAKER):
        limiter.update_origin_breakers({HERE: breaker}, now=START)

        assert limiter.has_failed_origin(HERE) is (breaker != CLOSED_BREAKER)
        assert limiter.is_paused(make_verified_webhook(), HERE, now=START) is (breaker == OPEN)


# -- waiting ----------------------------------------------------------------------------------------------------------------


def test_a_webhook_without_permits_is_skipped_until_permits_may_be_available(limiter: ConcurrencyLimiter) -> None:
    webhook = make_webhook(breaker=CircuitBreaker(failures=5, openings=1, paused_until=START + timedelta(hours=1)))
    limiter.mark_waiting(webhook, HERE, now=START)
    almost = START + timedelta(seconds=RECHECK_AFTER_SECONDS - 0.001)

    assert limiter.webhooks_without_permits(now=START) == limiter.webhooks_without_permits(now=almost) == {webhook.id}
    assert limiter.webhooks_without_permits(now=START + timedelta(seconds=RECHECK_AFTER_SECONDS)) == set()
    assert not limiter.is_waiting(webhook.id)


def test_a_waiting_webhook_with_permits_is_checked(limiter: ConcurrencyLimiter) -> None:
    webhook = make_verified_webhook()
    limiter.mark_waiting(webhook, HERE, now=START)

    assert limiter.webhooks_without_permits(now=START) == set()
    assert limiter.is_waiting(webhook.id)
    limiter.clear_waiting(webhook.id)
    assert not limiter.is_waiting(webhook.id)


def test_if_thousands_wait_a_hundred_are_checked_in_a_second(limiter: ConcurrencyLimiter) -> None:
    """All of ten thousand were read every ten seconds, and each of these queries looked at all of them."""
    pause = CircuitBreaker(failures=5, openings=1, paused_until=START + timedelta(hours=1))
    for _ in range(3000):
        limiter.mark_waiting(make_verified_webhook(breaker=pause), HERE, now=START)

    after = [0, 10, 20, 30]
    skipped = [len(limiter.webhooks_without_permits(now=START + timedelta(seconds=each))) for each in after]

    assert skipped == [3000, 1999, 999, 0]


def test_a_webhook_is_checked_in_time_however_many_webhooks_of_another_principal_wait(
    limiter: ConcurrencyLimiter,
) -> None:
    """Another node closes a breaker that is open here. One principal's dead receivers delayed the callbacks of all others."""
    pause = CircuitBreaker(failures=5, openings=1, paused_until=START + timedelta(hours=1))
    for _ in range(3000):
        limiter.mark_waiting(make_verified_webhook(breaker=pause), HERE, now=START)
    others = [make_verified_webhook(principal=Principal(name), breaker=pause) for name in ("bob", "carol")]
    for other in others:
        limiter.mark_waiting(other, THERE, now=START)

    skipped = limiter.webhooks_without_permits(now=START + timedelta(seconds=RECHECK_AFTER_SECONDS))

    assert len(skipped) > 1000
    assert skipped.isdisjoint(other.id for other in others)


def test_however_many_principals_wait_at_most_two_hundred_webhooks_are_checked_in_a_second(
    limiter: ConcurrencyLimiter,
) -> None:
    pause = CircuitBreaker(failures=5, openings=1, paused_until=START + timedelta(hours=1))
    names = ["alice"] * 2000 + [f"other-{number}" for number in range(2000)]
    webhooks = [make_verified_webhook(principal=Principal(name), breaker=pause) for name in names]
    checked = 0
    for second in range(200):
        now = START + timedelta(seconds=second)
        limiter.webhooks_without_permits(now=now)
        for webhook in webhooks:
            if not limiter.is_waiting(webhook.id):
                limiter.mark_waiting(webhook, HERE, now=now)
                checked += second >= 100

    assert 5_000 < checked <= 20_000


def test_an_idle_webhook_is_skipped_for_a_second_or_until_a_permit_is_released(limiter: ConcurrencyLimiter) -> None:
    webhook = make_verified_webhook(ordered=True)
    slot = limiter.acquire_permit(webhook, HERE, now=START)
    limiter.mark_waiting(webhook, HERE, now=START, is_blocked=True)

    assert limiter.webhooks_without_permits(now=START) == {webhook.id}
    assert limiter.release_permit(slot)
    assert limiter.webhooks_without_permits(now=START) == set()

    limiter.mark_waiting(webhook, HERE, now=START, is_blocked=True)
    assert limiter.webhooks_without_permits(now=START + timedelta(seconds=BLOCKED_RECHECK_SECONDS)) == set()


def test_releasing_a_permit_reports_whether_another_webhook_may_wait_for_it(limiter: ConcurrencyLimiter) -> None:
    first, second = (limiter.acquire_permit(make_verified_webhook(), HERE, now=START) for _ in range(2))
    elsewhere = limiter.acquire_permit(make_verified_webhook(), THERE, now=START)
    assert not limiter.release_permit(first)

    limiter.mark_waiting(make_verified_webhook(), HERE, now=START)

    assert not limiter.release_permit(elsewhere)
    assert limiter.release_permit(second)


def test_a_principal_whose_attempts_have_too_large_bodies_has_no_permits_at_any_origin_until_one_ends() -> None:
    limiter = ConcurrencyLimiter(ConcurrencyLimits(principal_body_bytes_max=1_000))
    one, other = make_verified_webhook(), make_verified_webhook()
    first, second = (
        limiter.count_body(limiter.acquire_permit(one, HERE, now=START), b"x" * size) for size in (900, 400)
    )
    limiter.mark_waiting(other, THERE, now=START)
    assert available_permits(limiter, other, THERE) == 0
    assert available_permits(limiter, make_verified_webhook(principal=Principal("bob")), THERE) > 0
    assert limiter.webhooks_without_permits(now=START) == {other.id}

    assert limiter.release_permit(second), "the other webhook waits for it"

    assert available_permits(limiter, other, THERE) > 0
    assert not limiter.release_permit(first), "there was room before"


def test_the_body_of_a_delivery_that_was_not_inserted_counts_no_more() -> None:
    limiter, webhook = ConcurrencyLimiter(ConcurrencyLimits(principal_body_bytes_max=1_000)), make_verified_webhook()
    permit = limiter.acquire_permit(webhook, HERE, now=START)
    counted = limiter.count_body(permit, b"x" * 1_000)
    assert available_permits(limiter, webhook) == 0

    limiter.discount_body(counted)
    limiter.cancel_permit(webhook, permit)

    assert (available_permits(limiter, webhook) > 0, limiter.in_flight) == (True, 0)


# -- pace -------------------------------------------------------------------------------------------------------------------


def test_a_webhook_has_no_more_permits_than_its_rate_allows(limiter: ConcurrencyLimiter) -> None:
    webhook = make_verified_webhook(rate_per_second=2.0, principal=ALICE)
    assert available_permits(limiter, webhook) == 2

    acquire_permits(limiter, webhook, 2)

    assert available_permits(limiter, webhook) == 0
    assert limiter.available_permits(webhook, HERE, now=START + timedelta(seconds=0.5)) == 1


def test_an_undone_attempt_returns_its_permit_and_its_rate_token(limiter: ConcurrencyLimiter) -> None:
    webhook = make_verified_webhook(rate_per_second=2.0, principal=ALICE)

    for _ in range(10):
        limiter.cancel_permit(webhook, limiter.acquire_permit(webhook, HERE, now=START))

    assert available_permits(limiter, webhook) == 2
    assert limiter.in_flight == 0


def test_permits_that_are_given_back_are_available_again_and_the_webhook_still_waits() -> None:
    limiter, webhook = ConcurrencyLimiter(ConcurrencyLimits()), make_verified_webhook(rate_per_second=4.0)
    assert limiter.available_permits(webhook, HERE, now=START) == 4

    permit = limiter.acquire_permit(webhook, HERE, now=START, count=4)
    assert limiter.available_permits(webhook, HERE, now=START) == 0
    limiter.mark_waiting(webhook, HERE, now=START, is_blocked=True)
    limiter.give_back_permits(webhook, permit, 3)

    assert (limiter.available_permits(webhook, HERE, now=START), limiter.in_flight) == (3, 1)
    assert limiter.is_waiting(webhook.id)
