"""A SQLite store in a folder of its own, for what only SQLite does."""

import sqlite3
from collections.abc import AsyncGenerator, Generator
from contextlib import closing
from pathlib import Path

import pytest

from ringback.storage.rows.webhook_reader import CachingWebhookReader
from ringback.storage.sqlite.commit_counter import CommitCounter
from ringback.storage.sqlite.database import connect, enable_wal
from ringback.storage.sqlite.group_commit import (
    GroupCommit,
)
from ringback.storage.sqlite.integrity import DatabaseIntegrity
from ringback.storage.sqlite.store import SqliteStore
from tests.support.clock import FakeClock
from tests.support.shared_setup import create_tables
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


# -- a group commit of its own, without a store -----------------------------------------------------------------------------


@pytest.fixture
def connection(path: Path) -> Generator[sqlite3.Connection]:
    with closing(connect(path, lock_wait_seconds=0)) as connection:
        enable_wal(connection)
        create_tables(connection)
        yield connection


@pytest.fixture
def commits(connection: sqlite3.Connection) -> list[str]:
    """One entry for every COMMIT that reaches SQLite."""
    seen: list[str] = []
    connection.set_trace_callback(lambda sql: seen.append(sql) if sql.startswith("COMMIT") else None)
    return seen


@pytest.fixture
def notified() -> list[str]:
    return []


@pytest.fixture
async def writer(
    connection: sqlite3.Connection, path: Path, clock: FakeClock, notified: list[str]
) -> AsyncGenerator[GroupCommit]:
    trust = DatabaseIntegrity(path)
    writer = GroupCommit(
        connection,
        clock=clock,
        sealer=make_sealer(),
        reader=CachingWebhookReader(make_sealer()),
        notify=notified.extend,
        commits=CommitCounter(connection, trust=trust),
        integrity=trust,
    )
    yield writer
    await writer.close()
