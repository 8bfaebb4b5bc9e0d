"""The ladders keep their bounds for any chance, any number of attempts, and anything a receiver writes into Retry-After."""

from datetime import datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.backoff import JITTER_FRACTION, parse_retry_after
from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.retry import RETRY_SCHEDULES, RetryProfile, retry_delay_seconds
from tests.support.clock import START

profiles = st.sampled_from(RetryProfile)
attempts = st.integers(1, 15)
chances = st.floats(0, 1, exclude_max=True)
asked = st.none() | st.floats(0, 1e12)
instants = st.integers(0, 4_000_000_000).map(lambda seconds: from_epoch_milliseconds(seconds * 1000))


@pytest.mark.requirement("R27")
@given(profile=profiles, attempts=attempts, chance=chances)
def test_each_step_is_jittered_by_a_fifth_at_most(profile: RetryProfile, attempts: int, chance: float) -> None:
    steps = RETRY_SCHEDULES[profile].delays_seconds
    delay = retry_delay_seconds(
        RETRY_SCHEDULES[profile], attempts=attempts, random_fraction=chance, retry_after_seconds=None
    )
    if attempts > len(steps):
        assert delay is None
    else:
        assert delay == pytest.approx(steps[attempts - 1], rel=JITTER_FRACTION)


@pytest.mark.requirement("R27")
@given(profile=profiles, attempts=attempts, chance=chances, asked=asked)
def test_retry_after_lengthens_a_wait_up_to_the_longest_step(
    profile: RetryProfile, attempts: int, chance: float, asked: float | None
) -> None:
    plain = retry_delay_seconds(
        RETRY_SCHEDULES[profile], attempts=attempts, random_fraction=chance, retry_after_seconds=None
    )
    delay = retry_delay_seconds(
        RETRY_SCHEDULES[profile], attempts=attempts, random_fraction=chance, retry_after_seconds=asked
    )
    if plain is None or delay is None:
        assert plain is delay
        return
    longest = RETRY_SCHEDULES[profile].delays_seconds[-1]
    assert plain <= delay <= max(plain, longest)
    if asked is not None:
        assert delay >= min(asked, longest)


@pytest.mark.requirement("R27")
@given(profile=profiles, chance=chances)
def test_every_step_of_a_schedule_is_reached_before_the_delivery_is_given_up(
    profile: RetryProfile, chance: float
) -> None:
    ladder = RETRY_SCHEDULES[profile]
    waits = [
        retry_delay_seconds(RETRY_SCHEDULES[profile], attempts=number, random_fraction=chance, retry_after_seconds=None)
        for number in range(1, len(ladder.delays_seconds) + 1)
    ]
    assert sum(wait for wait in waits if wait is not None) < ladder.give_up_seconds


@given(
    text=st.text() | st.from_regex(r"[A-Za-z]{3},? [0-9]{1,2}[ -][A-Za-z]{3}[ -][0-9]{2,5} [0-9:]{5,8} [A-Z+\-0-9]*")
)
def test_any_retry_after_value_is_a_delay_or_none(text: str) -> None:
    wait = parse_retry_after(text, now=START)
    assert wait is None or 0 <= wait < 1e12


@given(seconds=st.integers(0, 10**10 - 1))
def test_a_number_of_seconds_is_understood(seconds: int) -> None:
    assert parse_retry_after(f" {seconds} ", now=START) == seconds


@given(instant=instants)
def test_a_date_is_understood_and_one_that_has_passed_means_now(instant: datetime) -> None:
    wanted = max(timedelta(0), instant - START).total_seconds()
    imf_fixdate = format_datetime(instant, usegmt=True)
    asctime = f"{instant:%a %b} {instant.day:2} {instant:%H:%M:%S %Y}"
    assert parse_retry_after(imf_fixdate, now=START) == wanted
    assert parse_retry_after(asctime, now=START) == wanted
