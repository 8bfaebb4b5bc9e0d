"""A SQLite store in a folder of its own, for what only SQLite does."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ringback.storage.sqlite.store import SqliteStore
from tests.support.clock import FakeClock
from tests.support.stores import make_sealer


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ringback.db"


@pytest.fixture
async def store(path: Path, clock: FakeClock) -> AsyncGenerator[SqliteStore]:
    store = SqliteStore(path, clock=clock, sealer=make_sealer())
    await store.open(exclusive=True)
    yield store
    await store.close()
