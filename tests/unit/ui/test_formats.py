"""Times, durations and sizes as pages write them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from ringback.ui.formats import (
    format_age,
    format_amount,
    format_bytes,
    format_count,
    format_duration,
    format_input_time,
    format_time,
)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (0, "0 ms"),
        (0.0004, "0 ms"),
        (0.85, "850 ms"),
        (0.9996, "1 s"),
        (3.21, "3.2 s"),
        (59.96, "1 min"),
        (245, "4 min 5 s"),
        (3600, "1 h"),
        (7380.4, "2 h 3 min"),
        (timedelta(days=5, hours=1, minutes=59), "5 d 1 h"),
        (-2.5, "-2.5 s"),
    ],
)
def test_a_duration_has_at_most_two_units(duration: timedelta | float, text: str) -> None:
    assert format_duration(duration) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (20 * 2**20, "20 MiB"), (3 * 2**40, "3 TiB")]
)
def test_a_size_is_in_the_largest_unit_below_it(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (44.0, "44"),
        (0.5, "0.5"),
        (1_234_567.0, "1,234,567"),
        (7, "7"),
        (1 / 3, "0.3333333333"),
        (10.0 * 2**30, "10,737,418,240"),
    ],
)
def test_progress_is_shown_without_a_fraction_of_zero_and_with_all_its_whole_digits(amount: float, text: str) -> None:
    assert format_amount(amount) == text


def test_a_time_is_an_element_that_a_script_can_show_in_another_zone_and_says_utc_without_one() -> None:
    instant = datetime(2026, 11, 23, 7, 5, 9, 120_000, tzinfo=timezone(timedelta(hours=1)))

    assert format_time(instant) == '<time datetime="2026-11-23T06:05:09.120Z">2026-11-23 06:05:09 UTC</time>'
    assert format_age(instant.astimezone(UTC)) == (
        '<time datetime="2026-11-23T06:05:09.120Z" data-age>2026-11-23 06:05:09 UTC</time>'
    )


def test_what_is_missing_is_a_dash() -> None:
    shown = [format_time(None), format_age(None), format_duration(None), format_bytes(None), format_count(None)]

    assert set(shown) == {"&ndash;"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-11-23T07:00", "2026-11-23T07:00"),
        ("2026-11-23T07:00:00.000Z", "2026-11-23T07:00"),
        ("2026-11-23T07:00:30.250+02:00", "2026-11-23T05:00:30.250"),
        ("2026-11-23T07:00:30", "2026-11-23T07:00:30"),
        ("yesterday", "yesterday"),
        (None, ""),
    ],
)
def test_an_input_of_a_local_time_gets_utc_without_an_offset(text: str | None, shown: str) -> None:
    """Browsers leave the field empty for a value with an offset, and the next filter would lose the time."""
    assert format_input_time(text) == shown
