from dataclasses import replace
from datetime import timedelta

import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import (
    DELIVERY_TRANSITIONS,
    OPEN_STATES,
    AttemptResult,
    DeliveryState,
    RetryDecision,
    category_for_status_code,
    decide_retry,
    next_generation,
)
from ringback.domain.ids import DeliveryId
from ringback.domain.retry import RETRY_SCHEDULES, RetryProfile
from tests.support.clock import START
from tests.support.examples import DELIVERY, EVENT

FIRST = replace(DELIVERY, state=DeliveryState.LEASED, attempts=1)
MIDDLE = 0.5
"""The chance that leaves a step of the ladder as it is."""


def decide(answer: AttemptResult, *, attempts: int = 1) -> RetryDecision:
    return decide_retry(
        replace(FIRST, attempts=attempts),
        answer,
        schedule=RETRY_SCHEDULES[RetryProfile.DAYS],
        now=START,
        confirmed_now=START,
        random_fraction=MIDDLE,
    )


def http(status_code: int, *, retry_after_seconds: float | None = None) -> AttemptResult:
    return AttemptResult(
        category=category_for_status_code(status_code), status_code=status_code, retry_after_seconds=retry_after_seconds
    )


def retry_after(seconds: float) -> RetryDecision:
    return RetryDecision(state=DeliveryState.PENDING, due_at=START + timedelta(seconds=seconds))


DEAD_WEBHOOK_RESPONSES = RetryDecision(state=DeliveryState.DEAD)


def test_every_state_has_its_row_in_the_table_and_closed_ones_lead_nowhere() -> None:
    assert set(DELIVERY_TRANSITIONS) == set(DeliveryState)
    assert {state for state, followers in DELIVERY_TRANSITIONS.items() if followers} == OPEN_STATES


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("status_code", [200, 201, 202, 204, 299])
def test_any_2xx_is_delivered(status_code: int) -> None:
    assert decide(http(status_code)) == RetryDecision(state=DeliveryState.DELIVERED)


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("status_code", [410, 413])
def test_gone_and_too_large_are_final(status_code: int) -> None:
    assert decide(http(status_code)) == DEAD_WEBHOOK_RESPONSES


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("status_code", [301, 302, 307, 400, 401, 403, 404, 409, 422, 429, 500, 502, 503])
def test_every_other_answer_is_tried_again(status_code: int) -> None:
    assert decide(http(status_code)) == retry_after(5)


@pytest.mark.requirement("R27")
@pytest.mark.parametrize(
    "category", [AttemptCategory.CONNECTION_REFUSED, AttemptCategory.TIMEOUT, AttemptCategory.TLS_ERROR]
)
def test_no_answer_is_tried_again(category: AttemptCategory) -> None:
    assert decide(AttemptResult(category=category)) == retry_after(5)


@pytest.mark.parametrize("status_code", [429, 503])
def test_a_busy_receiver_may_request_more_time(status_code: int) -> None:
    assert decide(http(status_code, retry_after_seconds=90)) == retry_after(90)


@pytest.mark.parametrize(
    ("seconds_left", "pause"),
    [
        pytest.param(3600, 3300, id="an-ordered-delivery-at-its-first-attempt"),
        pytest.param(200, 5, id="less-than-the-longest-pause-of-a-breaker"),
    ],
)
def test_a_receiver_that_requests_more_time_than_a_delivery_has_does_not_lose_it(
    seconds_left: float, pause: float
) -> None:
    decision = decide_retry(
        replace(FIRST, give_up_at=START + timedelta(seconds=seconds_left)),
        http(503, retry_after_seconds=7200),
        schedule=RETRY_SCHEDULES[RetryProfile.DAYS],
        now=START,
        confirmed_now=START,
        random_fraction=MIDDLE,
    )

    assert decision == retry_after(pause)


def test_only_a_busy_receiver_is_listened_to() -> None:
    assert decide(http(500, retry_after_seconds=90)) == retry_after(5)


@pytest.mark.requirement("R27")
def test_a_delivery_is_given_up_after_the_last_step_of_its_schedule() -> None:
    assert decide(http(500), attempts=11) == retry_after(86400)
    assert decide(http(500), attempts=12) == DEAD_WEBHOOK_RESPONSES


def test_nothing_is_tried_after_the_day_it_is_given_up() -> None:
    at_the_last_moment = replace(FIRST, give_up_at=START + timedelta(seconds=5))
    too_late = replace(FIRST, give_up_at=START + timedelta(seconds=4.999))

    assert decide_retry(
        at_the_last_moment,
        http(500),
        schedule=RETRY_SCHEDULES[RetryProfile.DAYS],
        now=START,
        confirmed_now=START,
        random_fraction=MIDDLE,
    ) == retry_after(5)
    assert (
        decide_retry(
            too_late,
            http(500),
            schedule=RETRY_SCHEDULES[RetryProfile.DAYS],
            now=START,
            confirmed_now=START,
            random_fraction=MIDDLE,
        )
        == DEAD_WEBHOOK_RESPONSES
    )


@pytest.mark.parametrize(
    ("status_code", "category"),
    [
        (200, AttemptCategory.DELIVERED),
        (304, AttemptCategory.HTTP_3XX),
        (404, AttemptCategory.HTTP_4XX),
        (502, AttemptCategory.HTTP_5XX),
        (103, AttemptCategory.HTTP_4XX),
        (999, AttemptCategory.HTTP_4XX),
    ],
)
def test_a_status_code_has_one_category(status_code: int, category: AttemptCategory) -> None:
    assert category_for_status_code(status_code) is category


def test_every_attempt_of_a_delivery_goes_by_the_id_of_its_event() -> None:
    assert replace(DELIVERY, generation=2, attempts=3).message_id == EVENT.id


def test_a_delivery_never_prints_what_it_carries() -> None:
    assert "hunter2" not in repr(replace(DELIVERY, body=b"hunter2"))
    assert "hunter2" not in repr(AttemptResult(category=AttemptCategory.HTTP_5XX, excerpt="hunter2"))


@pytest.mark.requirement("R27")
@pytest.mark.parametrize(("holds", "state"), [(False, DeliveryState.PENDING), (True, DeliveryState.HELD)])
def test_a_replayed_delivery_has_the_same_body_and_continues_the_attempts(*, holds: bool, state: DeliveryState) -> None:
    later = START + timedelta(days=5)
    dead = replace(
        DELIVERY, state=DeliveryState.DEAD, attempts=12, last_category=AttemptCategory.TIMEOUT, finished_at=later
    )

    renewed = next_generation(
        dead, delivery_id=DeliveryId("dlv_2"), is_held=holds, schedule=RETRY_SCHEDULES[RetryProfile.DAYS], now=later
    )

    assert (renewed.id, renewed.generation, renewed.state, renewed.attempts) == ("dlv_2", 2, state, 0)
    assert (renewed.body, renewed.message_id, renewed.seq) == (dead.body, dead.message_id, dead.seq)
    assert (renewed.due_at, renewed.give_up_at) == (later, later + timedelta(days=4))
    assert (renewed.last_category, renewed.finished_at) == (None, None)
