"""Damage in the write-ahead log is found before SQLite, which ignores and then removes what is behind it, opens the file."""

import os
import random
import shutil
import sqlite3
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.storage.schema import read_schema_state
from ringback.storage.sqlite import database
from ringback.storage.sqlite.log_check import count_unreadable_commits
from ringback.storage.sqlite.store import SqliteStore
from tests.support.builders import make_api_key
from tests.support.clock import FakeClock
from tests.support.stores import make_sealer

COMMITS = 40


def flip_bit(path: Path, offset: int, *, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ (1 << bit)]))


def copy_files(source: Path, target: Path, *suffixes: str) -> Path:
    """What a crash leaves of an open database."""
    for suffix in ("", "-wal", *suffixes):
        shutil.copyfile(f"{source}{suffix}", f"{target}{suffix}")
    return Path(f"{target}-wal")


@pytest.fixture
def opened(tmp_path: Path) -> Generator[Path]:
    """A log that overwrites an earlier one, with one row for each commit."""
    path = tmp_path / "opened.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("CREATE TABLE rows (content)")
        for _ in range(COMMITS):
            connection.execute("INSERT INTO rows VALUES (randomblob(3000))")
        connection.execute("PRAGMA wal_checkpoint")
        for _ in range(COMMITS):
            connection.execute("INSERT INTO rows VALUES (randomblob(3000))")
        yield path


def count_lost(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (found,) = connection.execute("SELECT count(*) FROM rows").fetchone()
    return 2 * COMMITS - found


def test_a_flipped_bit_is_damage_exactly_if_sqlite_would_lose_more_than_the_last_commit(opened: Path) -> None:
    chance, copy = random.Random(5), opened.with_name("copy.db")
    size = Path(f"{opened}-wal").stat().st_size
    for offset in (0, 4, 9, 18, *(chance.randrange(size) for _ in range(60))):
        flip_bit(copy_files(opened, copy), offset, bit=chance.randrange(8))
        unreadable = count_unreadable_commits(copy)
        assert (unreadable > 0) == (count_lost(copy) > 1), offset


def test_a_log_that_ends_anywhere_is_not_damaged(opened: Path) -> None:
    chance, copy = random.Random(6), opened.with_name("copy.db")
    size = Path(f"{opened}-wal").stat().st_size
    for length in (0, 31, 32, size, *(chance.randrange(size) for _ in range(20))):
        os.truncate(copy_files(opened, copy), length)
        assert count_unreadable_commits(copy) == 0


# -- what opens the file ----------------------------------------------------------------------------------------------------


def make_store(path: Path) -> SqliteStore:
    return SqliteStore(path, clock=FakeClock(), sealer=make_sealer())


@asynccontextmanager
async def crashed_service(tmp_path: Path, *suffixes: str) -> AsyncGenerator[Path]:
    """The database's copy at a path, as a service that was killed left it, with these further files."""
    served = tmp_path / "served.db"
    store = make_store(served)
    await store.open(exclusive=True)
    for _ in range(5):
        await store.write(lambda tx: tx.api_keys.insert(make_api_key()))
    path = tmp_path / "crashed.db"
    copy_files(served, path, *suffixes)
    try:
        yield path
    finally:
        await store.close()


@pytest.mark.parametrize("suffixes", [(), (".lock",)])
async def test_a_database_with_a_damaged_log_is_not_opened_and_the_log_stays(
    tmp_path: Path, suffixes: tuple[str, ...]
) -> None:
    async with crashed_service(tmp_path, *suffixes) as path:
        log = Path(f"{path}-wal")
        whole = log.read_bytes()  # noqa: ASYNC240
        for offset in (4, 100, 9_000):
            flip_bit(log, offset)
            for exclusive in (True, False):
                with pytest.raises(StoreUnavailable, match=r"-wal' is damaged: \d+ commits .* undamaged copy"):
                    await make_store(path).open(exclusive=exclusive)
            with pytest.raises(StoreUnavailable, match="is damaged"):
                await read_schema_state(f"sqlite:///{path}")
            flip_bit(log, offset)
            assert log.read_bytes() == whole  # noqa: ASYNC240

        store = make_store(path)
        await store.open(exclusive=True)
        assert len(await store.read(lambda tx: tx.api_keys.list_page(None, position=None, limit=10))) == 5
        await store.close()


async def test_an_accepted_loss_opens_the_file(tmp_path: Path) -> None:
    async with crashed_service(tmp_path) as path:
        flip_bit(Path(f"{path}-wal"), 4)
        store = make_store(path)

        await store.open(exclusive=True, accept_missing_commits=True)

        await store.close()
        await store.open(exclusive=True)
        await store.close()


async def test_a_command_beside_a_running_service_does_not_check_its_log(tmp_path: Path) -> None:
    async with crashed_service(tmp_path) as path:
        service, command = make_store(path), make_store(path)
        await service.open(exclusive=True)
        flip_bit(Path(f"{path}-wal"), 4)

        await command.open(exclusive=False)

        await command.close()
        await service.close()


def test_a_full_disk_at_the_start_names_the_folder(tmp_path: Path) -> None:
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL

    explained = database.explain_opening(full, tmp_path / "ringback.db")

    assert str(tmp_path) in explained.detail
    assert "Free some space" in explained.detail


def test_a_folder_that_cannot_be_written_at_the_start_is_named(tmp_path: Path) -> None:
    refused = sqlite3.OperationalError("attempt to write a readonly database")
    refused.sqlite_errorcode = sqlite3.SQLITE_READONLY | 5 << 8  # SQLITE_READONLY_CANTINIT

    explained = database.explain_opening(refused, tmp_path / "ringback.db")

    assert f"write access to '{tmp_path}'" in explained.detail
    assert "try again" not in explained.detail
    assert explained.needs_operator
