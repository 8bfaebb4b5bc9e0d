"""Engines over a store of their own: on the machine's clock, or on one that moves only when a test advances it."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ringback.notifier import catch_up
from tests.support.catch_ups import FEW
from tests.support.clock import FakeClock, OffsetClock
from tests.support.engine import Engine
from tests.support.stores import FailingStore, open_test_store


@pytest.fixture
def clock() -> OffsetClock:
    return OffsetClock()


@pytest.fixture
async def unsteady(tmp_path: Path, clock: OffsetClock) -> AsyncGenerator[FailingStore]:
    async with open_test_store(tmp_path, clock) as store:
        yield FailingStore(store)


@pytest.fixture
def engine(unsteady: FailingStore, clock: OffsetClock) -> Engine:
    """In the time of the machine: what waits, waits."""
    return Engine(unsteady, clock)


@pytest.fixture
def fake_clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def still_unsteady(tmp_path: Path, fake_clock: FakeClock) -> AsyncGenerator[FailingStore]:
    async with open_test_store(tmp_path, fake_clock) as store:
        yield FailingStore(store)


@pytest.fixture
def still(still_unsteady: FailingStore, fake_clock: FakeClock) -> Engine:
    """In a time that stands still until the test moves it."""
    return Engine(still_unsteady, fake_clock)


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "STEP_EVENTS_MAX", FEW)
