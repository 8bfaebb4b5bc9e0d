"""When too many attempts to a subscription fail: more than 95 % of at least 100 within 60 minutes (mcp-events §8)."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain import webhook_health as health
from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import AttemptResult
from ringback.domain.failure_rate import NO_FAILURES, FailureRate, exceeds_failure_rate, rate_after_attempt
from ringback.domain.ids import WebhookId
from ringback.domain.webhook import Webhook, WebhookState, with_state
from tests.support.clock import START
from tests.support.examples import WEBHOOK

HOUR = timedelta(hours=1)
SUBSCRIPTION = replace(WEBHOOK, id=WebhookId("sub_" + "a" * 32))


def count(failures: int, successes: int, *, at: datetime = START) -> FailureRate:
    """The counters after so many failures, and then so many successes."""
    rate = NO_FAILURES
    for number in range(failures + successes):
        rate = rate_after_attempt(rate, failed=number < failures, now=at)
    return rate


def fail(webhook: Webhook, *, now: datetime, category: AttemptCategory = AttemptCategory.HTTP_5XX) -> Webhook:
    return health.webhook_after_failure(
        webhook, AttemptResult(category=category), now=now, confirmed_now=now, random_fraction=0.5
    )


def test_a_working_subscription_is_not_counted() -> None:
    assert rate_after_attempt(NO_FAILURES, failed=False, now=START) == NO_FAILURES


@pytest.mark.parametrize(("failures", "successes"), [(100, 0), (96, 4)])
def test_more_than_95_percent_of_at_least_100_attempts_are_too_many(failures: int, successes: int) -> None:
    assert count(failures, successes).is_too_high


@pytest.mark.parametrize(("failures", "successes"), [(99, 0), (95, 5)])
def test_fewer_attempts_or_fewer_failures_are_not_too_many(failures: int, successes: int) -> None:
    assert not count(failures, successes).is_too_high


def test_the_window_is_judged_after_60_minutes_and_not_before() -> None:
    rate = count(100, 0)

    assert not exceeds_failure_rate(rate, now=START + HOUR - timedelta(milliseconds=1))
    assert exceeds_failure_rate(rate, now=START + HOUR)


def test_a_window_with_few_attempts_ends_after_its_hour() -> None:
    later = START + HOUR

    assert rate_after_attempt(count(99, 0), failed=True, now=later) == count(1, 0, at=later)
    assert rate_after_attempt(count(99, 0), failed=False, now=later) == NO_FAILURES


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 600)), max_size=300))
def test_the_counters_are_bounded_by_the_attempts_of_one_window(attempts: list[tuple[bool, int]]) -> None:
    rate, now = NO_FAILURES, START
    for failed, pause in attempts:
        now += timedelta(seconds=pause)
        rate = rate_after_attempt(rate, failed=failed, now=now)
        assert 0 <= rate.counted_failures <= rate.counted_attempts <= len(attempts)
        assert (rate.counted_since is None) == (rate.counted_attempts == 0)


def test_a_subscription_that_fails_too_often_is_suspended_and_a_refresh_resumes_it() -> None:
    failing = replace(SUBSCRIPTION, failure_rate=count(100, 0))

    suspended = fail(failing, now=START + HOUR)

    assert (suspended.state, suspended.failure_rate) == (WebhookState.SUSPENDED, NO_FAILURES)
    refreshed = with_state(suspended, WebhookState.ACTIVE)
    assert (refreshed.state, refreshed.failing_since, refreshed.failure_rate) == (
        WebhookState.ACTIVE, None, NO_FAILURES,
    )  # fmt: skip


def test_failures_of_ours_are_not_counted() -> None:
    assert fail(SUBSCRIPTION, now=START, category=AttemptCategory.LOOK_UP_FAILED).failure_rate == NO_FAILURES


def test_attempts_to_a_webhook_of_the_rest_api_are_not_counted() -> None:
    assert fail(WEBHOOK, now=START).failure_rate == NO_FAILURES


def test_a_success_within_the_window_is_counted() -> None:
    failing = fail(SUBSCRIPTION, now=START)

    recovered = health.webhook_after_success(failing, now=START)

    assert (recovered.failure_rate.counted_attempts, recovered.failure_rate.counted_failures) == (2, 1)
    again = health.webhook_after_success(recovered, now=START)
    assert again.failure_rate.counted_attempts == 3, "a second success within the second is written, too"
