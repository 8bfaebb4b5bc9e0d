"""Every test of this folder runs with every kind of store."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ringback.domain.ports import Store
from tests.support.clock import FakeClock
from tests.support.stores import STORES


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> AsyncGenerator[Store]:
    async with STORES[request.param](tmp_path, clock) as opened:
        yield opened
