"""The log while the database is away: one line a minute, however many units fail, and one at the end."""

import logging

import pytest

from ringback.domain.errors import RowsLocked, StoreUnavailable
from ringback.storage.postgres.availability import Availability
from tests.support.clock import FakeClock


async def fail() -> None:
    raise StoreUnavailable("The database cannot be used now: gone.")


async def succeed() -> int:
    return 7


@pytest.fixture
def availability(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> Availability:
    caplog.set_level(logging.INFO, logger="ringback")
    return Availability(clock)


async def observe_failures(availability: Availability, count: int, *, writes: bool = True) -> None:
    for _ in range(count):
        with pytest.raises(StoreUnavailable):
            await availability.observe(fail(), writes=writes)


async def test_an_outage_is_one_line_a_minute_and_one_at_its_end(
    availability: Availability, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    await observe_failures(availability, 100)
    clock.advance(61)
    await observe_failures(availability, 100)
    assert await availability.observe(succeed(), writes=True) == 7
    await availability.observe(succeed(), writes=True)

    assert caplog.messages == ["store.unavailable", "store.unavailable", "store.available"]
    assert caplog.records[1].__dict__["failures"] == 100
    assert "gone" in caplog.records[0].__dict__["reason"]


async def test_a_locked_row_is_no_outage_and_one_warning_a_minute(
    availability: Availability, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator was called because of an outage of the database, which worked."""

    async def wait_in_vain() -> None:
        raise RowsLocked("canceling statement due to lock timeout.", waited_seconds=10.0)

    for _ in range(2):
        for _ in range(10):
            with pytest.raises(RowsLocked):
                await availability.observe(wait_in_vain(), writes=True)
            await availability.observe(succeed(), writes=True)
        clock.advance(61)

    assert caplog.messages == ["store.rows_locked", "store.rows_locked"]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert "lock timeout" in caplog.records[0].__dict__["reason"]


async def test_a_full_disk_is_not_over_when_reading_works(
    availability: Availability, caplog: pytest.LogCaptureFixture
) -> None:
    await observe_failures(availability, 1)
    await availability.observe(succeed(), writes=False)

    assert caplog.messages == ["store.unavailable"]


async def test_a_database_that_only_was_read_is_available_when_it_is_read_again(
    availability: Availability, caplog: pytest.LogCaptureFixture
) -> None:
    await observe_failures(availability, 1, writes=False)
    await availability.observe(succeed(), writes=False)

    assert caplog.messages == ["store.unavailable", "store.available"]


async def test_a_database_that_comes_and_goes_does_not_flood_the_log(
    availability: Availability, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        await observe_failures(availability, 1)
        await availability.observe(succeed(), writes=True)

    assert caplog.messages == ["store.unavailable", "store.available"]
