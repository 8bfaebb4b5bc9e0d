"""A runner at work on a real store, and real upstreams to drive."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.support.clock import OffsetClock
from tests.support.engine import Engine
from tests.support.stores import open_test_store


@pytest.fixture
def clock() -> OffsetClock:
    return OffsetClock()


@pytest.fixture
async def engine(tmp_path: Path, clock: OffsetClock) -> AsyncGenerator[Engine]:
    async with open_test_store(tmp_path, clock) as store:
        yield Engine(store, clock)
