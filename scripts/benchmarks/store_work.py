"""Counts what a store does: numbers that are the same on every machine at any load.

Both stores count their statements; SQLite also instructions of its virtual machine, and PostgreSQL the rows that it reads.
"""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final
from unittest.mock import patch

import asyncpg

from ringback.storage.postgres.statements import PostgresStatements
from ringback.storage.sqlite import database
from ringback.storage.sqlite.statements import SqliteStatements
from scripts.benchmarks.databases import SQLITE_URL_PREFIX
from tests.support.vm_steps import INSTRUCTIONS_PER_STEP

METHODS: Final = ("fetch_all", "fetch_one", "fetch_records", "fetch_record", "execute", "execute_many")
ROWS_READ: Final = "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0) FROM pg_stat_user_tables"


@dataclass(slots=True)
class StoreWork:
    statements: int = 0
    work: int = 0
    """Instructions of SQLite's virtual machine, or rows that PostgreSQL read from tables and through indexes."""


@asynccontextmanager
async def counting_work(database_url: str) -> AsyncGenerator[StoreWork]:
    """Counts what the stores that are opened and closed meanwhile do. Complete only after the end of the context."""
    work = StoreWork()
    is_sqlite = database_url.startswith(SQLITE_URL_PREFIX)
    before = 0 if is_sqlite else await _read_rows_read(database_url)
    with counting_statements(work), _counting_steps(work):
        yield work
    if not is_sqlite:
        work.work = await _read_rows_read(database_url) - before


async def _read_rows_read(database_url: str) -> int:
    """The rows read by connections that are closed: PostgreSQL adds the counts of a connection when it ends."""
    connection = await asyncpg.connect(database_url)
    try:
        return int(await connection.fetchval(ROWS_READ))
    finally:
        await connection.close()


async def analyze(database_url: str) -> None:
    """Let PostgreSQL know how many rows there are, as autovacuum does soon. SQLite needs no statistics here."""
    if database_url.startswith(SQLITE_URL_PREFIX):
        return
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


@contextmanager
def counting_statements(work: StoreWork) -> Generator[None]:
    """Counts the statements of all stores of this process meanwhile."""

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        async def run(*arguments: Any, **parameters: Any) -> Any:
            work.statements += 1
            return await method(*arguments, **parameters)

        return run

    with ExitStack() as stack:
        for kind in (SqliteStatements, PostgresStatements):
            for name in METHODS:
                stack.enter_context(patch.object(kind, name, counted(getattr(kind, name))))
        yield


@contextmanager
def _counting_steps(work: StoreWork) -> Generator[None]:
    connect = database.connect

    def add_steps() -> int:
        work.work += INSTRUCTIONS_PER_STEP
        return 0

    def connect_and_count(path: Path, *, lock_wait_seconds: float) -> Connection:
        connection = connect(path, lock_wait_seconds=lock_wait_seconds)
        connection.set_progress_handler(add_steps, INSTRUCTIONS_PER_STEP)
        return connection

    with patch.object(database, "connect", connect_and_count):
        yield
