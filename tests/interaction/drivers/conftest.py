"""A runner at work on a real store, and real upstreams to drive."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.support.clock import ShiftedClock
from tests.support.engine import Engine
from tests.support.stores import sqlite_store


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
async def engine(tmp_path: Path, clock: ShiftedClock) -> AsyncGenerator[Engine]:
    async with sqlite_store(tmp_path, clock) as store:
        yield Engine(store, clock)
