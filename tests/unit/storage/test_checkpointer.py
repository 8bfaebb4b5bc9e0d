"""Pages of the log are copied into the database file beside the commits."""

import asyncio
import logging
import sqlite3
import struct
from collections.abc import AsyncGenerator, Generator, Sized
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
from tests.support.examples import ALICE
from tests.support.stores import make_sealer

ROW: Final = "x" * 100_000
LOG_BYTES_MAX: Final = 64 * 1024 * 1024


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
    with opening(path) as connection, opening(path) as reader:
        checkpointer = Checkpointer(connection, reader, interval_seconds=0.0)
        yield checkpointer
        await checkpointer.close()


def opening(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(path, check_same_thread=False, isolation_level=None))


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
    with opening(path) as connection, opening(path) as reader:
        tries = 0

        def refuse_once(action: int, *_names: str | None) -> int:
            nonlocal tries
            tries += action == sqlite3.SQLITE_PRAGMA
            return sqlite3.SQLITE_DENY if tries <= 1 else sqlite3.SQLITE_OK

        connection.set_authorizer(refuse_once)
        checkpointer = Checkpointer(connection, reader, interval_seconds=0.0)
        write_row(writer)
        await note_commits_until_copied(checkpointer, path)
        await checkpointer.close()
    assert tries > 1


async def test_copies_that_fail_in_a_row_are_warned_of_once(
    writer: sqlite3.Connection, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log grows meanwhile, and a full disk refuses a copy each second."""
    refusals = 0

    def refuse(action: int, *_names: str | None) -> int:
        nonlocal refusals
        refusals += action == sqlite3.SQLITE_PRAGMA
        return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_PRAGMA else sqlite3.SQLITE_OK

    with opening(path) as connection, opening(path) as reader:
        checkpointer = Checkpointer(connection, reader, interval_seconds=0.0)
        for rows in (1, 2):
            connection.set_authorizer(refuse)
            write_row(writer)
            async with asyncio.timeout(60):
                while refusals < 3 * rows:
                    checkpointer.note_commit()
                    await asyncio.sleep(0)
            connection.set_authorizer(None)
            await note_commits_until_copied(checkpointer, path, rows=rows)
        await checkpointer.close()

    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.message for record in warnings] == ["store.log_not_copied"] * 2


async def test_closing_cancels_a_planned_copy(writer: sqlite3.Connection, path: Path) -> None:
    with opening(path) as connection, opening(path) as reader:
        checkpointer = Checkpointer(connection, reader, interval_seconds=3600.0)
        write_row(writer)
        checkpointer.note_commit()
        await asyncio.wait_for(checkpointer.close(), 60)
    assert count_bytes(path) < len(ROW)


def count_frames(path: Path) -> tuple[int, int]:
    """How many pages the log has, and how many of them are copied, as its index says."""
    index = path.with_name(f"{path.name}-shm").read_bytes()
    (pages,), (copied,) = (struct.unpack_from("=I", index, offset) for offset in (16, 96))
    return pages, copied


@pytest.mark.parametrize("copied_before", [False, True], ids=["pages_to_copy", "nothing_to_copy"])
async def test_pages_are_not_counted_as_copied_of_a_log_that_a_commit_begins_anew_meanwhile(
    writer: sqlite3.Connection, path: Path, *, copied_before: bool
) -> None:
    """The copy and the new log at one moment are a data race of SQLite before 3.51.3, which loses pages."""
    during = list[tuple[int, int]]()

    def commit_twice(statement: str) -> None:
        if "wal_checkpoint" in statement:  # it is about to run
            for _ in range(2):
                writer.execute("UPDATE texts SET text = 'short'")
                during.append(count_frames(path))

    write_row(writer)
    if copied_before:
        writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
    else:
        writer.execute("PRAGMA wal_autocheckpoint = 1")
    before = count_frames(path)
    with opening(path) as connection, opening(path) as reader:
        connection.set_trace_callback(commit_twice)
        checkpointer = Checkpointer(connection, reader, interval_seconds=0.0)
        checkpointer.note_commit()
        await wait_until(lambda: is_long(during, 2))
        await checkpointer.close()

    begun_anew = any(pages < before[0] for pages, _ in during)
    assert begun_anew is copied_before
    assert not (begun_anew and count_frames(path)[1])


async def is_long(values: Sized, length: int) -> bool:
    return len(values) >= length


async def test_a_store_copies_its_log_while_it_serves(tmp_path: Path) -> None:
    served = tmp_path / "served.db"
    async with open_store(str(served), clock=FakeClock(), sealer=make_sealer(), exclusive=True) as store:
        before = count_bytes(served)

        async def is_copied() -> bool:
            return count_bytes(served) >= before + len(ROW)

        await store.write(fill_log)
        await wait_until(is_copied)


async def test_a_command_beside_a_service_leaves_the_copying_to_the_service(tmp_path: Path) -> None:
    """Two processes that copy at once are the data race of SQLite before 3.51.3."""
    served = tmp_path / "served.db"
    async with (
        open_store(str(served), clock=FakeClock(), sealer=make_sealer(), exclusive=True) as service,
        open_store(str(served), clock=FakeClock(), sealer=make_sealer(), exclusive=False) as command,
    ):
        before = count_bytes(served)
        await command.write(fill_log)
        await command.write(reserve_place)
        assert count_bytes(served) == before
        await service.write(reserve_place)
        assert count_bytes(served) >= before + LOG_BYTES_MAX


async def fill_log(tx: Transaction) -> None:
    assert isinstance(tx, SqliteTransaction)
    await tx.write_probe.write_probe_row()
    tx.connection.execute("UPDATE write_probe SET filler = zeroblob(?)", [LOG_BYTES_MAX])


async def reserve_place(tx: Transaction) -> None:
    await tx.events.reserve_seqs(ALICE, 1)
