"""Scheduling time, whatever is done to the wall clock: never backwards, off by a sixtieth at most, and back in the end."""

from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.clock import CONTINUED_AHEAD_SECONDS_MAX, EARLIEST_VALID_INSTANT, SLEW_DIVISOR, SchedulingTime

SECOND = 1_000_000_000
DAY = 24 * 3600 * SECOND
START = 1_795_000_000 * SECOND

passing = st.integers(0, 2 * DAY)
steps = st.one_of(st.just(0), st.integers(-2 * DAY, 2 * DAY))
lives = st.lists(st.tuples(passing, steps), min_size=1, max_size=30)


@given(lives)
def test_it_never_goes_backwards_and_slews_by_a_sixtieth_at_most(life: list[tuple[int, int]]) -> None:
    now = SchedulingTime(START, 0)
    wall, elapsed = START, 0
    for passed, step in life:
        wall, elapsed = wall + passed + step, elapsed + passed
        after = now.advanced_to(elapsed=elapsed, wall=wall)
        assert after.instant >= now.instant
        assert abs((after.instant - now.instant) - passed) <= passed // SLEW_DIVISOR
        now = after


@given(lives)
def test_scheduling_time_stays_close_to_the_wall_clock(life: list[tuple[int, int]]) -> None:
    now = SchedulingTime(START, 0)
    wall, elapsed = START, 0
    for passed, step in life:
        wall += step
        before = abs(wall - now.instant)
        wall, elapsed = wall + passed, elapsed + passed
        now = now.advanced_to(elapsed=elapsed, wall=wall)
        assert abs(wall - now.instant) <= before


@given(st.integers(-DAY, DAY), st.integers(1, 50))
def test_it_meets_the_wall_clock_again_after_sixty_times_the_step(step: int, looks: int) -> None:
    now, needed = SchedulingTime(START, 0), abs(step) * SLEW_DIVISOR + looks * SLEW_DIVISOR
    for look in range(1, looks + 1):
        elapsed = needed * look // looks
        now = now.advanced_to(elapsed=elapsed, wall=START + step + elapsed)
    assert abs(now.instant - (START + step + needed)) <= looks


@given(st.lists(st.integers(0, 3600 * SECOND), min_size=1, max_size=30), st.integers(-500, 500))
def test_a_clock_that_only_runs_a_little_fast_or_slow_is_followed_exactly(passed: list[int], ppm: int) -> None:
    now, elapsed = SchedulingTime(START, 0), 0
    for each in passed:
        elapsed += each
        wall = now.instant + each + each * ppm // 1_000_000
        now = now.advanced_to(elapsed=elapsed, wall=wall)
        assert abs(now.instant - wall) <= 1


@given(st.integers(-3 * DAY, 3 * DAY))
def test_the_next_process_goes_on_from_where_the_last_one_stood_if_that_is_ahead_by_days_at_most(ahead: int) -> None:
    now = SchedulingTime(START, 0).continued_after(START + ahead)

    assert now.instant == (START + ahead if 0 < ahead <= CONTINUED_AHEAD_SECONDS_MAX * SECOND else START)


def test_a_clock_that_was_not_set_yet_is_followed_at_once_when_it_is() -> None:
    at_boot = SchedulingTime(0, 0)
    set_at = EARLIEST_VALID_INSTANT + 10**18

    assert at_boot.advanced_to(elapsed=10**9, wall=set_at).instant == set_at
