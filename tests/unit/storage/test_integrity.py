"""The store stops if the files of its open database are removed, replaced or damaged."""

import asyncio
import logging
import os
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ringback.domain.call import Call
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.storage.sqlite.store import SqliteStore
from tests.support.builders import make_api_key, make_call
from tests.support.clock import FakeClock
from tests.support.examples import ALICE
from tests.support.stores import make_sealer
from tests.unit.storage.ending_processes import close_after_a_restore, die_after_writing, reserve, run_in_process


async def head(store: SqliteStore) -> int:
    return await store.read(lambda tx: tx.event_log.get_head(ALICE))


def database_file(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}{suffix}")


def list_distrust_warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.message == "store.untrusted"]


# -- the files themselves ---------------------------------------------------------------------------------------------------


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.rename(path)


def move_back(path: Path) -> None:
    path.with_name("elsewhere").rename(path)


def move(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("happens", [remove, replace, move])
async def test_a_commit_into_a_removed_file_is_not_acknowledged(
    store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture, suffix: str, happens: Callable[[Path], None]
) -> None:
    ended: list[str] = []

    async def reserve_and_tell(tx: Transaction) -> int:
        tx.on_commit(partial(ended.append, "committed"))
        tx.on_rollback(partial(ended.append, "rolled back"))
        return await reserve(tx)

    assert await store.write(reserve_and_tell) == 1
    happens(database_file(path, suffix))

    outcomes = await asyncio.gather(*(store.write(reserve_and_tell) for _ in range(5)), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 5
    assert ended == ["committed", *["rolled back"] * 5]
    assert f"'{database_file(path, suffix)}' was re" in str(outcomes[0])
    with pytest.raises(StoreUnavailable, match="Stop the service"):
        await head(store)
    assert len(list_distrust_warnings(caplog)) == 1


async def test_a_file_that_comes_back_is_not_trusted_before_the_next_start(store: SqliteStore, path: Path) -> None:
    move(path)
    with pytest.raises(StoreUnavailable):
        await store.write(reserve)
    move_back(path)

    with pytest.raises(StoreUnavailable, match="start it again"):
        await store.write(reserve)


async def test_a_transaction_without_changes_checks_no_file(store: SqliteStore, path: Path) -> None:
    await store.write(reserve)
    remove(path)

    assert await store.write(lambda tx: tx.event_log.get_head(ALICE)) == 1


async def test_closing_saves_the_content_of_a_log_whose_name_was_removed(
    store: SqliteStore, path: Path, clock: FakeClock
) -> None:
    await store.write(reserve)
    remove(database_file(path, "-wal"))
    await store.close()

    again = SqliteStore(path, clock=clock, sealer=make_sealer())
    await again.open(exclusive=True)
    try:
        assert await head(again) == 1
    finally:
        await again.close()


def test_a_restored_database_loses_no_file_when_the_old_process_ends(path: Path) -> None:
    """The last connection that closes removes -wal and -shm by their names, but not when the database was moved."""
    assert run_in_process(close_after_a_restore, path) == 0

    assert {suffix: database_file(path, suffix).read_text() for suffix in ("", "-wal", "-shm")} == dict.fromkeys(
        ("", "-wal", "-shm"), "restored"
    )


# -- damage -----------------------------------------------------------------------------------------------------------------


async def damaged(path: Path, clock: FakeClock) -> SqliteStore:
    """A store whose table of calls is garbage, opened after that happened."""
    before = SqliteStore(path, clock=clock, sealer=make_sealer())
    await before.open(exclusive=True)
    await before.write(lambda tx: tx.calls.insert(make_call()))
    await before.close()
    with closing(sqlite3.connect(path)) as looking:
        (page,) = looking.execute("SELECT rootpage FROM sqlite_master WHERE name = 'calls'").fetchone()
        (size,) = looking.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    after = SqliteStore(path, clock=clock, sealer=make_sealer())
    await after.open(exclusive=True)
    return after


def reads(store: SqliteStore) -> Awaitable[Call | None]:
    return store.read(lambda tx: tx.calls.get(make_call().id))


def scans(store: SqliteStore) -> Awaitable[Call | None]:
    return store.scan(ALICE, lambda tx: tx.calls.get(make_call().id))


@pytest.mark.parametrize("read", [reads, scans])
async def test_a_read_of_a_damaged_page_stops_all_work_and_is_logged_once(
    path: Path,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    read: Callable[[SqliteStore], Awaitable[Call | None]],
) -> None:
    store = await damaged(path, clock)

    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="is damaged"):
            await read(store)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="is damaged"):
            await store.write(reserve)

    assert len(list_distrust_warnings(caplog)) == 1
    assert [record.message for record in caplog.records] == ["store.untrusted"]
    await store.close()


async def test_a_write_to_a_damaged_page_rolls_back_its_whole_group(
    path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = await damaged(path, clock)

    outcomes = await asyncio.gather(
        store.write(reserve), store.write(lambda tx: tx.calls.insert(make_call())), return_exceptions=True
    )

    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 2
    assert "is damaged" in str(outcomes[0])
    assert len(list_distrust_warnings(caplog)) == 1
    assert all(record.exc_info is None for record in caplog.records)
    await store.close()


async def test_an_open_database_never_waits_inside_sqlite_for_a_lock(path: Path, clock: FakeClock) -> None:
    store = await open_again(path, clock)
    opened: Any = getattr(store, "_open_database", None)  # what it opened shows nowhere else
    assert opened is not None
    connections = [opened.reader, opened.group_commit._connection, *(each._connection for each in opened.pool._free)]

    waits = [connection.execute("PRAGMA busy_timeout").fetchone()[0] for connection in connections]

    assert waits == [0] * len(connections)
    await store.close()


async def test_a_damaged_database_is_reported_at_the_start(path: Path, clock: FakeClock) -> None:
    await (await open_again(path, clock)).close()
    with path.open("r+b") as file:
        file.write(b"\xff" * 4096)

    with pytest.raises(StoreUnavailable, match="is damaged") as refused:
        await open_again(path, clock)

    assert refused.value.needs_operator


# -- commits that are missing -----------------------------------------------------------------------------------------------


async def open_again(path: Path, clock: FakeClock) -> SqliteStore:
    store = SqliteStore(path, clock=clock, sealer=make_sealer())
    await store.open(exclusive=True)
    return store


async def test_a_write_ahead_log_that_vanished_after_a_crash_is_noticed(path: Path, clock: FakeClock) -> None:
    await (await open_again(path, clock)).close()
    assert run_in_process(die_after_writing, path) == -signal.SIGKILL
    remove(database_file(path, "-wal"))

    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"The last 7 commits .* are missing.*--accept-restore") as refused:
            await open_again(path, clock)
        assert refused.value.needs_operator


async def test_a_crash_alone_loses_no_commit_and_logs_no_warning(path: Path, clock: FakeClock) -> None:
    assert run_in_process(die_after_writing, path) == -signal.SIGKILL
    looking = SqliteStore(path, clock=clock, sealer=make_sealer())
    await looking.open(exclusive=False)
    await looking.write(lambda tx: tx.api_keys.insert(make_api_key()))  # beside it, and not counted
    await looking.close()  # the last one that closes removes the log

    store = await open_again(path, clock)

    assert await head(store) == 7
    await store.close()
    await (await open_again(path, clock)).close()


async def test_a_stale_new_or_earlier_version_lock_file_logs_no_warning(path: Path, clock: FakeClock) -> None:
    for text in (None, b"", b"4711", b"4711\n", b"\0" * 42, b"1                   \n00000000000000000000\n"):
        if text is None:
            database_file(path, ".lock").unlink(missing_ok=True)
        else:
            database_file(path, ".lock").write_bytes(text)
        store = await open_again(path, clock)
        await store.write(reserve)
        await store.close()


async def reserve_and_raise(tx: Transaction) -> None:
    await reserve(tx)
    raise LookupError


async def test_transactions_without_changes_and_those_that_were_rolled_back_are_not_counted(
    store: SqliteStore, path: Path
) -> None:
    await store.write(reserve)
    size = database_file(path, "-wal").stat().st_size
    count = database_file(path, ".lock").read_bytes()

    for _ in range(10):
        await store.write(lambda tx: tx.event_log.get_head(ALICE))
        with pytest.raises(LookupError):
            await store.write(reserve_and_raise)

    assert database_file(path, "-wal").stat().st_size == size
    assert database_file(path, ".lock").read_bytes() == count
    assert count == f"{os.getpid():<20}\n{1:020}\n".encode()
