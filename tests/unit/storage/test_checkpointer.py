"""Pages of the log are copied into the database file beside the commits."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Generator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from ringback.domain.ports import Transaction
from ringback.storage.open import open_store
from ringback.storage.sqlite.checkpointer import Checkpointer
from ringback.storage.sqlite.database import connect, enable_wal
from ringback.storage.sqlite.transaction import SqliteTransaction
from tests.support.clock import FakeClock
from tests.support.engine import wait_until
from tests.support.stores import make_sealer

ROW: Final = "x" * 100_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpointer.db"


@pytest.fixture
def writer(path: Path) -> Generator[sqlite3.Connection]:
    with closing(connect(path, lock_wait_seconds=0)) as connection:
        enable_wal(connection)
        connection.execute("CREATE TABLE texts (text TEXT)")
        yield connection


@pytest.fixture
async def checkpointer(writer: sqlite3.Connection, path: Path) -> AsyncGenerator[Checkpointer]:
    del writer  # it makes the log
    with closing(sqlite3.connect(path, check_same_thread=False, isolation_level=None)) as connection:
        checkpointer = Checkpointer(connection, interval_seconds=0.0)
        yield checkpointer
        await checkpointer.close()


def write_row(writer: sqlite3.Connection) -> None:
    writer.execute("INSERT INTO texts VALUES (?)", (ROW,))


def count_bytes(path: Path) -> int:
    return path.stat().st_size


async def note_commits_until_copied(checkpointer: Checkpointer, path: Path, *, rows: int = 1) -> None:
    async with asyncio.timeout(60):
        while count_bytes(path) < rows * len(ROW):
            checkpointer.note_commit()
            await asyncio.sleep(0)


async def test_the_pages_of_a_commit_are_copied_without_another_commit(
    writer: sqlite3.Connection, checkpointer: Checkpointer, path: Path
) -> None:
    async def is_copied() -> bool:
        return count_bytes(path) >= len(ROW)

    write_row(writer)
    assert not await is_copied()  # the commit itself has left them in the log
    checkpointer.note_commit()
    await wait_until(is_copied)


async def test_commits_after_a_copy_are_copied_too(
    writer: sqlite3.Connection, checkpointer: Checkpointer, path: Path
) -> None:
    for rows in (1, 2, 3):
        write_row(writer)
        await note_commits_until_copied(checkpointer, path, rows=rows)


async def test_a_reader_of_an_older_state_keeps_it_and_delays_no_commit(
    writer: sqlite3.Connection, checkpointer: Checkpointer, path: Path
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM texts").fetchone() == (0,)
        write_row(writer)
        checkpointer.note_commit()
        await asyncio.wait_for(checkpointer.close(), 60)
        write_row(writer)
        assert reader.execute("SELECT count(*) FROM texts").fetchone() == (0,)
    (rows,) = writer.execute("SELECT count(*) FROM texts").fetchone()
    assert rows == 2


async def test_a_copy_that_fails_is_tried_again_after_the_next_commit(writer: sqlite3.Connection, path: Path) -> None:
    with closing(sqlite3.connect(path, check_same_thread=False, isolation_level=None)) as connection:
        tries = 0

        def refuse_once(action: int, *_names: str | None) -> int:
            nonlocal tries
            tries += action == sqlite3.SQLITE_PRAGMA
            return sqlite3.SQLITE_DENY if tries <= 1 else sqlite3.SQLITE_OK

        connection.set_authorizer(refuse_once)
        checkpointer = Checkpointer(connection, interval_seconds=0.0)
        write_row(writer)
        await note_commits_until_copied(checkpointer, path)
        await checkpointer.close()
    assert tries > 1


async def test_closing_cancels_a_planned_copy(writer: sqlite3.Connection, path: Path) -> None:
    with closing(sqlite3.connect(path, check_same_thread=False, isolation_level=None)) as connection:
        checkpointer = Checkpointer(connection, interval_seconds=3600.0)
        write_row(writer)
        checkpointer.note_commit()
        await asyncio.wait_for(checkpointer.close(), 60)
    assert count_bytes(path) < len(ROW)


async def test_a_store_copies_its_log_while_it_serves(tmp_path: Path) -> None:
    async def write_row_of_probe(tx: Transaction) -> None:
        assert isinstance(tx, SqliteTransaction)
        await tx.write_probe.write_probe_row()
        tx.connection.execute("UPDATE write_probe SET filler = zeroblob(?)", [10 * len(ROW)])

    served = tmp_path / "served.db"
    async with open_store(str(served), clock=FakeClock(), sealer=make_sealer(), exclusive=True) as store:
        before = count_bytes(served)

        async def is_copied() -> bool:
            return count_bytes(served) >= before + len(ROW)

        await store.write(write_row_of_probe)
        await wait_until(is_copied)
