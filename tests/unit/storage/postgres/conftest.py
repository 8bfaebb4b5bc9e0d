"""Two stores on one PostgreSQL database, as two nodes have them, and a connection beside them."""

from collections.abc import AsyncGenerator

import asyncpg
import pytest

from ringback.storage.postgres.store import PostgresStore
from tests.support.clock import FakeClock
from tests.support.databases import migrated_postgres
from tests.support.stores import make_sealer


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def url() -> AsyncGenerator[str]:
    """The URL of a database with empty tables."""
    with migrated_postgres() as url:
        yield url


@pytest.fixture
async def store(url: str, clock: FakeClock) -> AsyncGenerator[PostgresStore]:
    store = PostgresStore(url, clock=clock, sealer=make_sealer())
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def other(url: str, clock: FakeClock) -> AsyncGenerator[PostgresStore]:
    """The store of another node."""
    store = PostgresStore(url, clock=clock, sealer=make_sealer())
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def admin(url: str) -> "AsyncGenerator[asyncpg.Connection[asyncpg.Record]]":
    connection = await asyncpg.connect(url)
    yield connection
    await connection.close()
