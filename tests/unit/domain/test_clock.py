from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.clock import (
    SystemClock,
    epoch_milliseconds,
    format_iso,
    from_epoch_milliseconds,
    seconds,
)
from ringback.domain.clock_confirmation import CONFIRMATION_SECONDS
from tests.support.clock import START, WallClockSteps

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
    assert datetime.fromisoformat(format_iso(instant)) == instant


@given(value=st.integers(0, 4_000_000_000_000), zone=zones)
def test_instants_are_formatted_in_utc_from_any_zone(value: int, zone: timezone) -> None:
    instant = from_epoch_milliseconds(value)
    assert format_iso(instant.astimezone(zone)) == format_iso(instant)


def test_text_has_the_form_that_every_body_shows() -> None:
    assert format_iso(datetime(2026, 11, 20, 17, tzinfo=UTC)) == "2026-11-20T17:00:00.000Z"


@given(value=st.floats(0, 1e7))
def test_a_duration_is_whole_milliseconds_nearest_to_what_was_said(value: float) -> None:
    duration = seconds(value)
    assert duration.microseconds % 1000 == 0
    assert duration.total_seconds() == pytest.approx(value, abs=0.0005001)


async def test_the_system_clock_returns_utc_in_milliseconds_and_moves_forwards() -> None:
    clock = SystemClock()
    began = clock.monotonic()
    await clock.sleep(0)

    assert clock.now().utcoffset() == timedelta(0)
    assert clock.now().microsecond % 1000 == 0
    assert clock.monotonic() >= began


class SuspendedMachineClock(SystemClock):
    """A machine that was asleep for an hour: its wall clock and its time since boot went on."""

    asleep = 0

    def _wall_nanoseconds(self) -> int:
        return super()._wall_nanoseconds() + self.asleep

    def _elapsed_nanoseconds(self) -> int:
        return super()._elapsed_nanoseconds() + self.asleep


def test_time_advances_while_the_machine_is_suspended() -> None:
    clock = SuspendedMachineClock()
    before = clock.now()
    clock.asleep = 3600 * 10**9

    assert clock.now() - before >= timedelta(hours=1)


def test_time_since_boot_is_read_where_the_machine_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def clock_gettime_ns(which: int) -> int:
        asked.append(which)
        return 0

    monkeypatch.setattr("time.clock_gettime_ns", clock_gettime_ns)
    monkeypatch.setattr("ringback.domain.clock._BOOT_TIME_CLOCK_ID", 7)
    SystemClock()
    monkeypatch.setattr("ringback.domain.clock._BOOT_TIME_CLOCK_ID", None)
    SystemClock()

    assert asked == [7]


def test_the_wall_clock_follows_its_steps_and_scheduling_time_does_not() -> None:
    clock = WallClockSteps(follows_database=True)
    clock.step(-3600)
    clock.pass_time(60)

    assert clock.wall_time() == START - timedelta(minutes=59)
    assert clock.now() == START + timedelta(seconds=59)


DAY = timedelta(days=1)


def test_a_clock_that_is_set_forward_by_more_than_a_day_is_followed_at_once_and_confirmed_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = WallClockSteps()
    clock.step(20 * DAY.total_seconds())
    clock.pass_time(1)

    assert clock.now() == clock.wall_time() == START + 20 * DAY + timedelta(seconds=1)
    assert clock.confirmed_now() == START + timedelta(seconds=1)
    assert [record.message for record in caplog.records] == ["clock.far_ahead"]
    clock.pass_time(CONFIRMATION_SECONDS - 1)
    assert clock.confirmed_now() == START + timedelta(seconds=CONFIRMATION_SECONDS)
    clock.pass_time(1)
    assert clock.confirmed_now() == clock.now()


def test_a_wrong_step_forward_that_is_taken_back_leaves_nothing_behind() -> None:
    clock = WallClockSteps()
    clock.step(400 * DAY.total_seconds())
    clock.pass_time(10)
    assert clock.confirmed_now() == START + timedelta(seconds=10)
    clock.step(-400 * DAY.total_seconds())
    clock.pass_time(1)

    assert clock.now() == clock.confirmed_now() == START + timedelta(seconds=11)


def test_a_second_step_forward_is_followed_too_and_confirmed_time_goes_on() -> None:
    clock = WallClockSteps()
    clock.step(20 * DAY.total_seconds())
    clock.pass_time(100)
    clock.step(30 * DAY.total_seconds())
    clock.pass_time(CONFIRMATION_SECONDS - 1)

    assert clock.now() == clock.wall_time()
    assert clock.confirmed_now() == START + timedelta(seconds=CONFIRMATION_SECONDS + 99)


def test_a_clock_that_is_set_forward_by_a_day_is_approached() -> None:
    clock = WallClockSteps()
    clock.step(DAY.total_seconds())
    clock.pass_time(60)

    assert clock.now() == clock.confirmed_now() == START + timedelta(seconds=61)
