"""What an answer, or none, changes about a webhook."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain import webhook_health as health
from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.circuit_breaker import CLOSED_BREAKER
from ringback.domain.delivery import (
    AttemptResult,
    Delivery,
    DeliveryKind,
    DeliveryState,
    give_up_seconds,
    leaves_gap,
    retry_schedule_for,
)
from ringback.domain.event import EventName, ExternalEvent, build_external_event
from ringback.domain.ids import EventId
from ringback.domain.retry import PROGRESS_SCHEDULE, RETRY_SCHEDULES, RetryProfile
from ringback.domain.webhook import Webhook, WebhookState, matches_event, with_state, with_url
from tests.support.builders import make_delivery
from tests.support.clock import START
from tests.support.examples import WEBHOOK

LONG_AGO = START - timedelta(seconds=health.SUSPEND_AFTER_SECONDS)


def fail(webhook: Webhook, *, now: datetime = START, category: AttemptCategory = AttemptCategory.TIMEOUT) -> Webhook:
    return health.webhook_after_failure(
        webhook, AttemptResult(category=category), now=now, confirmed_now=now, random_fraction=0.5
    )


def test_a_success_ends_every_failure() -> None:
    failing = fail(fail(WEBHOOK))
    assert (failing.last_error, failing.failing_since, failing.breaker.failures) == ("timeout", START, 2)

    fine = health.webhook_after_success(failing, now=START)

    assert (fine.last_error, fine.failing_since, fine.breaker) == (None, None, CLOSED_BREAKER)
    assert fine.last_delivery_at == START


def test_successes_within_a_second_are_written_down_once() -> None:
    fine = health.webhook_after_success(WEBHOOK, now=START)

    assert health.webhook_after_success(fine, now=START + timedelta(seconds=0.999)) is fine
    later = START + timedelta(seconds=1)
    assert health.webhook_after_success(fine, now=later).last_delivery_at == later


@pytest.mark.parametrize("state", WebhookState)
def test_only_an_active_webhook_is_suspended_and_only_a_suspended_one_revived(state: WebhookState) -> None:
    webhook = replace(WEBHOOK, state=state, failing_since=LONG_AGO)
    active, suspended = WebhookState.ACTIVE, WebhookState.SUSPENDED

    assert fail(webhook).state is (suspended if state is active else state)
    assert health.webhook_after_success(webhook, now=START).state is (active if state is suspended else state)


def test_only_suspension_and_recovery_are_reported_to_the_owner() -> None:
    names = {
        (before, after): health.health_event_name(replace(WEBHOOK, state=before), replace(WEBHOOK, state=after))
        for before in WebhookState
        for after in WebhookState
    }

    assert {change: name for change, name in names.items() if name} == {
        (WebhookState.ACTIVE, WebhookState.SUSPENDED): EventName.WEBHOOK_SUSPENDED,
        (WebhookState.SUSPENDED, WebhookState.ACTIVE): EventName.WEBHOOK_RECOVERED,
    }


@given(
    hours=st.lists(st.one_of(st.floats(0, 60), st.sampled_from([0.0, 19.2, 48.0])), max_size=20),
    successes=st.sets(st.integers(0, 19), max_size=2),
)
def test_each_level_is_raised_once_until_a_success_and_never_after_the_suspension(
    hours: list[float], successes: set[int]
) -> None:
    webhook, now, since = WEBHOOK, START, None
    raised: list[int] = []
    for number, pause in enumerate(hours):
        now += timedelta(hours=pause)
        if number in successes:
            webhook, since, raised = health.webhook_after_success(webhook, now=now), None, []
            continue
        since = since or now
        before, webhook = webhook, fail(webhook, now=now)
        percent = (now - since) / timedelta(seconds=health.SUSPEND_AFTER_SECONDS) * 100
        if health.health_event_name(before, webhook) is EventName.WEBHOOK_FAILING:
            raised.append(webhook.alerted_percent)
            assert 50 <= raised[-1] <= percent < 100
        assert raised == sorted(set(raised))
        if webhook.state is WebhookState.ACTIVE:
            assert max([0, *raised]) == max(each for each in (0, *health.FAILING_PERCENTS) if percent >= each - 1e-9)


@pytest.mark.parametrize(
    ("state", "category"),
    [(WebhookState.ACTIVE, AttemptCategory.LOOK_UP_FAILED), (WebhookState.DISABLED, AttemptCategory.TIMEOUT)],
    ids=["a failure of ours", "a disabled webhook"],
)
def test_no_warning_is_raised_for_what_would_suspend_nothing(state: WebhookState, category: AttemptCategory) -> None:
    webhook = replace(WEBHOOK, state=state, failing_since=START - timedelta(hours=60))
    assert fail(webhook, category=category).alerted_percent == 0


def test_a_new_failing_period_begins_without_a_warning() -> None:
    """A node of an older version resets `failing_since` without the level."""
    warned = replace(WEBHOOK, failing_since=START - timedelta(hours=60), alerted_percent=50)
    for reset in (
        health.webhook_after_success(warned, now=START),
        with_url(warned, "https://elsewhere.example/"),
        with_state(replace(warned, state=WebhookState.DISABLED), WebhookState.ACTIVE),
        fail(replace(warned, failing_since=None)),
    ):
        assert reset.alerted_percent == 0
    again = fail(fail(health.webhook_after_success(warned, now=START)), now=START + timedelta(hours=60))
    assert again.alerted_percent == 50


def test_no_webhook_gets_an_event_about_itself() -> None:
    name = EventName.WEBHOOK_SUSPENDED
    listening = replace(WEBHOOK, events=frozenset({name}))
    event = health.build_webhook_event(listening, name, event_id=EventId("evt_1"), seq=1, now=START)

    assert not matches_event(listening, event, now=START)
    assert matches_event(replace(listening, id="wh_other"), event, now=START)
    assert not matches_event(replace(listening, id="wh_other", upstream="git"), event, now=START)


def test_a_webhook_gets_a_published_event_whose_data_names_it() -> None:
    name = "receivers.checked"
    listening = replace(WEBHOOK, events=frozenset({name}))
    published = ExternalEvent(name=name, id=None, data={"webhook_id": listening.id})
    event = build_external_event(listening.principal, published, event_id=EventId("evt_1"), seq=1, now=START)

    assert matches_event(listening, event, now=START)


def test_the_first_place_missed_is_kept() -> None:
    assert health.webhook_after_loss(health.webhook_after_loss(WEBHOOK, 7), 9).missed_from == 7
    assert health.webhook_after_loss(health.webhook_after_loss(WEBHOOK, 7), 5).missed_from == 5


def test_another_url_has_another_receiver() -> None:
    failing = replace(fail(health.webhook_after_success(WEBHOOK, now=START)), missed_from=3)

    assert with_url(failing, failing.url) is failing
    elsewhere = with_url(failing, "https://elsewhere.example/")
    assert not health.is_healthy(elsewhere)
    assert (elsewhere.failing_since, elsewhere.breaker, elsewhere.missed_from) == (None, CLOSED_BREAKER, 3)


# -- kinds of deliveries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", RetryProfile)
def test_each_delivery_kind_has_its_schedule_and_ordering_does_not_extend_it(profile: RetryProfile) -> None:
    schedule = RETRY_SCHEDULES[profile]
    assert retry_schedule_for(DeliveryKind.EVENT, schedule) == schedule
    assert retry_schedule_for(DeliveryKind.PROGRESS, schedule) == PROGRESS_SCHEDULE
    assert retry_schedule_for(DeliveryKind.GAP, schedule) == RETRY_SCHEDULES[RetryProfile.MINUTES]
    for kind in DeliveryKind:
        plain = give_up_seconds(kind, schedule, ordered=False)
        assert plain == retry_schedule_for(kind, schedule).give_up_seconds
        assert give_up_seconds(kind, schedule, ordered=True) == min(plain, 3600)


@pytest.mark.parametrize(
    ("delivery", "loss"),
    [
        (make_delivery(), True),
        (make_delivery(kind=DeliveryKind.PROGRESS), False),
        (make_delivery(kind=DeliveryKind.GAP, event_id=None), True),
        (make_delivery(generation=2), False),
        (make_delivery(seq=None, call_id=None), False),
    ],
    ids=["event", "progress", "gap", "sent again", "test"],
)
def test_a_given_up_delivery_leaves_a_gap_if_the_receiver_missed_an_event(delivery: Delivery, *, loss: bool) -> None:
    assert leaves_gap(replace(delivery, state=DeliveryState.DEAD)) is loss
