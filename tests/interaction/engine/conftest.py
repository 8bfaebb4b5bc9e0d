"""Engines over a store of their own: on the machine's clock, or on one that moves only when it is told to."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.support.clock import FakeClock, ShiftedClock
from tests.support.engine import Engine
from tests.support.stores import UnsteadyStore, sqlite_store


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
async def unsteady(tmp_path: Path, clock: ShiftedClock) -> AsyncGenerator[UnsteadyStore]:
    async with sqlite_store(tmp_path, clock) as store:
        yield UnsteadyStore(store)


@pytest.fixture
def engine(unsteady: UnsteadyStore, clock: ShiftedClock) -> Engine:
    """In the time of the machine: what waits, waits."""
    return Engine(unsteady, clock)


@pytest.fixture
def fake_clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def still_unsteady(tmp_path: Path, fake_clock: FakeClock) -> AsyncGenerator[UnsteadyStore]:
    async with sqlite_store(tmp_path, fake_clock) as store:
        yield UnsteadyStore(store)


@pytest.fixture
def still(still_unsteady: UnsteadyStore, fake_clock: FakeClock) -> Engine:
    """In a time that stands still until the test moves it."""
    return Engine(still_unsteady, fake_clock)
