from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.clock import (
    SystemClock,
    epoch_milliseconds,
    from_epoch_milliseconds,
    iso,
    seconds,
)

# From the first instant that a datetime holds to the last, by way of 1970.
milliseconds = st.integers(-62_135_596_800_000, 253_402_300_799_999)
zones = st.integers(-12 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(value=milliseconds)
def test_an_instant_comes_back_from_its_number_of_milliseconds(value: int) -> None:
    instant = from_epoch_milliseconds(value)
    assert epoch_milliseconds(instant) == value
    assert instant.microsecond % 1000 == 0


@given(value=milliseconds)
def test_an_instant_comes_back_from_its_text(value: int) -> None:
    instant = from_epoch_milliseconds(value)
    assert datetime.fromisoformat(iso(instant)) == instant


@given(value=st.integers(0, 4_000_000_000_000), zone=zones)
def test_text_is_utc_whatever_zone_the_instant_was_told_in(value: int, zone: timezone) -> None:
    instant = from_epoch_milliseconds(value)
    assert iso(instant.astimezone(zone)) == iso(instant)


def test_text_has_the_form_that_every_body_shows() -> None:
    assert iso(datetime(2026, 11, 20, 17, tzinfo=UTC)) == "2026-11-20T17:00:00.000Z"


@given(value=st.floats(0, 1e7))
def test_a_duration_is_whole_milliseconds_nearest_to_what_was_said(value: float) -> None:
    duration = seconds(value)
    assert duration.microseconds % 1000 == 0
    assert duration.total_seconds() == pytest.approx(value, abs=0.0005001)


async def test_the_machines_clock_tells_utc_in_milliseconds_and_moves_forwards() -> None:
    clock = SystemClock()
    began = clock.monotonic()
    await clock.sleep(0)

    assert clock.now().utcoffset() == timedelta(0)
    assert clock.now().microsecond % 1000 == 0
    assert clock.monotonic() >= began
