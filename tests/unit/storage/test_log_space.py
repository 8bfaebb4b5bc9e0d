"""Space in the write-ahead log is reserved with zeros; nothing that was committed is lost or mistaken for damage by that."""

import errno
import os
import shutil
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.storage.sqlite.log_check import count_unreadable_commits
from ringback.storage.sqlite.log_space import RESERVED_BYTES, UNRESERVED_BYTES, LogSpace
from ringback.storage.sqlite.store import SqliteStore
from tests.support.builders import make_api_key
from tests.support.clock import FakeClock
from tests.support.stores import make_sealer

COMMITS_MAX = 500


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def log_bytes(path: Path) -> int:
    return log_of(path).stat().st_size


def make_store(path: Path) -> SqliteStore:
    return SqliteStore(path, clock=FakeClock(), sealer=make_sealer())


@asynccontextmanager
async def opened_store(path: Path, *, exclusive: bool = True) -> AsyncGenerator[SqliteStore]:
    store = make_store(path)
    await store.open(exclusive=exclusive)
    try:
        yield store
    finally:
        await store.close()


async def commit_key(store: SqliteStore) -> None:
    await store.write(lambda tx: tx.api_keys.insert(make_api_key()))


async def commit_until(store: SqliteStore, path: Path, *, log_is_larger_than: int) -> int:
    """Commit one key after the other, and return how many."""
    for number in range(1, COMMITS_MAX):
        await commit_key(store)
        if log_bytes(path) > log_is_larger_than:
            return number
    raise AssertionError(f"the log has {log_bytes(path)} bytes after {COMMITS_MAX} commits")


async def fill_reserved_log(store: SqliteStore, path: Path) -> int:
    """Commit until the log ends with zeros, and return how many keys there are."""
    keys = await commit_until(store, path, log_is_larger_than=UNRESERVED_BYTES)
    await commit_key(store)
    assert log_bytes(path) > UNRESERVED_BYTES + RESERVED_BYTES
    return keys + 1


def count_keys(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (found,) = connection.execute("SELECT count(*) FROM api_keys").fetchone()
    return found


def copy_after_crash(source: Path, target: Path) -> Path:
    for suffix in ("", "-wal", ".lock"):
        shutil.copyfile(f"{source}{suffix}", f"{target}{suffix}")
    return target


async def test_commits_in_reserved_space_leave_the_size_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "ringback.db"
    async with opened_store(path) as store:
        await fill_reserved_log(store, path)
        size = log_bytes(path)
        for _ in range(20):
            await commit_key(store)
        assert log_bytes(path) == size


async def test_used_up_space_is_reserved_again(tmp_path: Path) -> None:
    path = tmp_path / "ringback.db"
    async with opened_store(path) as store:
        await fill_reserved_log(store, path)
        size = log_bytes(path)
        assert await commit_until(store, path, log_is_larger_than=size) > 20
        await commit_key(store)
        assert log_bytes(path) > size + RESERVED_BYTES


async def test_the_log_of_a_command_beside_a_service_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "ringback.db"
    async with opened_store(path, exclusive=False) as store:
        await commit_until(store, path, log_is_larger_than=UNRESERVED_BYTES)
        size = log_bytes(path)
        await commit_key(store)
        assert size < log_bytes(path) < size + RESERVED_BYTES


async def test_a_killed_service_finds_every_commit_in_front_of_the_zeros(tmp_path: Path) -> None:
    path = tmp_path / "ringback.db"
    async with opened_store(path) as store:
        keys = await fill_reserved_log(store, path)
        crashed = copy_after_crash(path, tmp_path / "crashed.db")
    assert count_unreadable_commits(crashed) == 0
    async with opened_store(crashed) as store:
        await commit_key(store)
        assert count_keys(crashed) == keys + 1


async def test_damage_in_front_of_the_zeros_is_found(tmp_path: Path) -> None:
    path = tmp_path / "ringback.db"
    async with opened_store(path) as store:
        await fill_reserved_log(store, path)
        crashed = copy_after_crash(path, tmp_path / "crashed.db")
    with log_of(crashed).open("r+b") as log:
        log.seek(9_000)
        log.write(b"damage")
    with pytest.raises(StoreUnavailable, match="-wal' is damaged"):
        await make_store(crashed).open(exclusive=True)


async def test_commits_of_another_process_stay_where_zeros_would_have_been(tmp_path: Path) -> None:
    path = tmp_path / "ringback.db"
    async with opened_store(path) as store:
        keys = await commit_until(store, path, log_is_larger_than=UNRESERVED_BYTES)
        async with opened_store(path, exclusive=False) as other:
            for _ in range(5):
                await commit_key(other)
        await commit_key(store)
        assert log_bytes(path) > UNRESERVED_BYTES + RESERVED_BYTES
        crashed = copy_after_crash(path, tmp_path / "crashed.db")
    assert count_keys(crashed) == keys + 6


def test_a_full_disk_reserves_nothing_and_raises_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ringback.db"
    log_of(path).write_bytes(bytes(UNRESERVED_BYTES + 1))
    space = LogSpace(path)
    space.note_commit()

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", refuse)
    space.reserve()
    assert log_bytes(path) == UNRESERVED_BYTES + 1
