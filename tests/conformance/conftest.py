"""Every test of this folder runs with every kind of store."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ringback.domain.ports import Store
from tests.support.clock import FakeClock
from tests.support.interleaving import Nodes, open_nodes
from tests.support.stores import open_test_store


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncGenerator[Store]:
    async with open_test_store(tmp_path, clock) as opened:
        yield opened


@pytest.fixture
async def nodes(tmp_path: Path, clock: FakeClock) -> AsyncGenerator[Nodes]:
    async with open_nodes(tmp_path, clock) as opened:
        yield opened
