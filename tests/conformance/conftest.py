"""Every test of this folder runs with every kind of store."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ringback.domain.ports import Store
from tests.support.clock import FakeClock
from tests.support.stores import open_test_store


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncGenerator[Store]:
    async with open_test_store(tmp_path, clock) as opened:
        yield opened
