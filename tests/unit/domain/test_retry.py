import pytest

from ringback.backoff import RETRY_AFTER_SECONDS_MAX, parse_retry_after
from ringback.domain.retry import RETRY_SCHEDULES, RetryProfile, retry_delay_seconds
from tests.support.clock import START


def test_the_ladders_are_the_published_ones() -> None:
    assert RETRY_SCHEDULES[RetryProfile.DAYS].delays_seconds == (
        5,
        30,
        120,
        600,
        1800,
        7200,
        18000,
        36000,
        50400,
        72000,
        86400,
    )
    assert RETRY_SCHEDULES[RetryProfile.MINUTES].delays_seconds == (2, 30, 120, 600)
    assert (
        RETRY_SCHEDULES[RetryProfile.DAYS].give_up_seconds,
        RETRY_SCHEDULES[RetryProfile.MINUTES].give_up_seconds,
    ) == (345600, 3600)


@pytest.mark.parametrize(("chance", "expected"), [(0, 4.0), (0.5, 5.0), (0.75, 5.5)])
def test_chance_moves_a_step_within_a_fifth(chance: float, expected: float) -> None:
    delay = retry_delay_seconds(
        RETRY_SCHEDULES[RetryProfile.DAYS], attempts=1, random_fraction=chance, retry_after_seconds=None
    )
    assert delay == pytest.approx(expected)


@pytest.mark.parametrize(
    "value",
    ["", "soon", "-5", "5.5", "1e9", "٣", "5 seconds", "Fri, 32 Nov 2026 17:00:00 GMT", "0 0 0 0 0"],
)
def test_an_invalid_retry_after_requests_no_delay(value: str) -> None:
    assert parse_retry_after(value, now=START) is None


@pytest.mark.parametrize("value", ["99999999999", "1000000000000", "9" * 10_000])
def test_a_retry_after_of_any_length_is_shortened(value: str) -> None:
    seconds = parse_retry_after(value, now=START)
    schedule = RETRY_SCHEDULES[RetryProfile.MINUTES]

    assert seconds == RETRY_AFTER_SECONDS_MAX
    assert retry_delay_seconds(schedule, attempts=1, random_fraction=0.5, retry_after_seconds=seconds) == 600


def test_leading_zeros_do_not_lengthen_a_retry_after() -> None:
    assert parse_retry_after("0" * 20 + "7", now=START) == 7
    assert parse_retry_after("0" * 20, now=START) == 0


def test_an_absent_retry_after_requests_no_delay() -> None:
    assert parse_retry_after(None, now=START) is None


@pytest.mark.parametrize(
    "value",
    [
        "Fri, 20 Nov 2026 17:02:00 GMT",
        "Friday, 20-Nov-26 17:02:00 GMT",
        "Fri Nov 20 17:02:00 2026",
        "Fri, 20 Nov 2026 18:02:00 +0100",
    ],
    ids=["IMF-fixdate", "RFC 850", "asctime", "RFC 5322"],
)
def test_every_form_of_date_that_http_allows_is_understood(value: str) -> None:
    assert parse_retry_after(value, now=START) == 120


def test_a_retry_after_date_in_the_past_requests_no_delay() -> None:
    assert parse_retry_after("Fri, 20 Nov 2026 16:00:00 GMT", now=START) == 0
