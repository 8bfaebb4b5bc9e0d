"""A PostgreSQL database without tables, and a connection to it."""

from collections.abc import AsyncGenerator

import asyncpg
import pytest

from tests.support.filled_postgres import Connection
from tests.support.postgres_databases import empty_database


@pytest.fixture
async def url() -> AsyncGenerator[str]:
    async with empty_database() as url:
        yield url


@pytest.fixture
async def connection(url: str) -> AsyncGenerator[Connection]:
    connection = await asyncpg.connect(url)
    yield connection
    await connection.close()
