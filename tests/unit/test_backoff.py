import pytest

from ringback.backoff import Backoff, add_jitter

BACKOFF = Backoff(first_seconds=0.25, longest_seconds=10.0, jitter_fraction=0.2)


def test_pauses_double_up_to_the_longest_one() -> None:
    assert [BACKOFF.pause_seconds(failures) for failures in (1, 2, 3, 7, 50, 100_000)] == [
        0.25,
        0.5,
        1.0,
        10.0,
        10.0,
        10.0,
    ]


def test_a_pause_is_spread_over_a_fifth_in_both_directions() -> None:
    assert BACKOFF.pause_seconds(1, random_fraction=0.0) == pytest.approx(0.2)
    assert BACKOFF.pause_seconds(50, random_fraction=1.0) == pytest.approx(12.0)


def test_a_pause_without_jitter_ignores_chance() -> None:
    assert Backoff(first_seconds=1, longest_seconds=60, factor=3).pause_seconds(3, random_fraction=0.9) == 9


def test_jitter_is_a_fifth_unless_the_caller_chooses_otherwise() -> None:
    assert (add_jitter(10, 0.0), add_jitter(10, 0.5), add_jitter(10, 0.75)) == pytest.approx((8, 10, 11))
