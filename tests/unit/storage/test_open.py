"""Opening a store by its URL, and the lock that one service has on it."""

import errno
import fcntl
import os
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import NoReturn

import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.storage.migrations import Migration
from ringback.storage.open import open_store
from ringback.storage.sqlite import database
from ringback.storage.sqlite import store as store_module
from ringback.storage.sqlite.file_lock import FileLock
from ringback.storage.sqlite.migrator import load_migrations
from ringback.storage.sqlite.store import SqliteStore
from tests.support.builders import make_api_key
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS
from tests.support.stores import make_sealer

SERVICE_USER = 65_534
"""Any user but root."""


def opening(path: Path, *, exclusive: bool = True) -> AbstractAsyncContextManager[Store]:
    return open_store(str(path), clock=FakeClock(), sealer=make_sealer(), exclusive=exclusive)


@pytest.mark.requirement("R34")
async def test_a_new_file_is_created_readable_by_its_owner_only(path: Path) -> None:
    before = os.umask(0)
    try:
        async with opening(path) as store:
            await store.write(lambda tx: tx.api_keys.insert(make_api_key()))
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(before)

    assert modes == {f"ringback.db{suffix}": 0o600 for suffix in ("", "-wal", "-shm", ".lock")}


async def test_a_database_has_one_lock_whatever_link_leads_to_it(path: Path) -> None:
    """Two services on one file would run the same calls."""
    link = path.parent / "link" / "other.db"
    link.parent.mkdir()
    link.symlink_to(path)
    async with opening(link):
        for name in (path, link):
            with pytest.raises(StoreUnavailable, match="already serves this database"):
                async with opening(name):
                    pass

    assert list(link.parent.iterdir()) == [link]


async def test_written_rows_are_kept_when_the_file_is_opened_again(path: Path) -> None:
    key = make_api_key()
    async with opening(path) as store:
        await store.write(lambda tx: tx.api_keys.insert(key))

    async with opening(path) as store:
        assert await store.read(lambda tx: tx.api_keys.list_all()) == [key]


async def test_a_second_service_on_the_same_file_is_refused_with_the_process_id_of_the_first(path: Path) -> None:
    async with opening(path):
        with pytest.raises(StoreUnavailable, match=f"process {os.getpid()}.* RINGBACK_DATABASE_URL or --database"):
            async with opening(path):
                raise NotImplementedError

    async with opening(path) as store:
        assert await store.read(lambda tx: tx.api_keys.list_all()) == []


async def test_a_tool_writes_beside_a_running_service_which_sees_it(path: Path) -> None:
    key = make_api_key()
    async with opening(path) as service:
        async with opening(path, exclusive=False) as tool:
            await tool.write(lambda tx: tx.api_keys.insert(key))

        assert await service.read(lambda tx: tx.api_keys.list_all()) == [key]


async def test_a_tool_of_a_newer_version_does_not_upgrade_the_database_of_a_running_service(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if its code may run on the result: a migration may occupy the only writer for minutes."""
    shipped = load_migrations()
    newer = Migration(len(shipped) + 1, f"-- oldest code: {len(shipped)}\nCREATE TABLE more (id TEXT) STRICT;")
    async with opening(path):
        monkeypatch.setattr(store_module, "load_migrations", lambda: [*shipped, newer])
        with pytest.raises(StoreUnavailable, match="restart that with this version") as refused:
            async with opening(path, exclusive=False):
                raise NotImplementedError

        assert refused.value.needs_operator
        assert not find_tables(path, "more")

    async with opening(path, exclusive=False):  # the service has stopped
        assert find_tables(path, "more")


def find_tables(path: Path, name: str) -> list[tuple[str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT name FROM sqlite_master WHERE name = ?", [name]).fetchall()


async def test_a_service_starts_while_a_command_looks_whether_one_runs(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opening(path):
        pass
    looking = os.open(path.with_name(f"{path.name}.lock"), os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)  # as `FileLock.is_held`

    def end_look(_seconds: float) -> None:
        os.close(looking)

    monkeypatch.setattr(time, "sleep", end_look)

    async with opening(path) as service:
        assert service.is_exclusive


def test_the_lock_ends_with_its_process_however_that_ends(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from ringback.storage.sqlite.file_lock import FileLock\n"
        "FileLock(Path(sys.argv[1])).acquire(); print('locked', flush=True); sys.stdin.read()"
    )
    path = tmp_path / "ringback.db.lock"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        lock = FileLock(path)
        with pytest.raises(StoreUnavailable, match=f"process {holder.pid}"):
            lock.acquire()
        holder.kill()

    lock.acquire()
    lock.release()
    lock.release()


@pytest.mark.parametrize("end", ["os._exit(0)", "lock.release(); sys.stdin.read()"], ids=["died", "released"])
def test_a_forked_child_does_not_keep_the_lock_of_its_parent(tmp_path: Path, end: str) -> None:
    """A worker of a process pool goes on when its server is killed, and the next server could not start."""
    source = (
        "import os, sys; from pathlib import Path; from ringback.storage.sqlite.file_lock import FileLock\n"
        "lock = FileLock(Path(sys.argv[1])); lock.acquire()\n"
        "if os.fork() == 0: print('forked', flush=True); sys.stdin.read(); os._exit(0)\n"
        f"{end}"
    )
    path = tmp_path / "ringback.db.lock"
    holder = subprocess.Popen([sys.executable, "-c", source, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"forked\n"
        lock = FileLock(path)
        _acquire_soon(lock)
        lock.release()


def _acquire_soon(lock: FileLock) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return lock.acquire()
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise


def test_the_lock_stays_with_a_process_that_forks(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "ringback.db.lock")
    lock.acquire()
    if (child := os.fork()) == 0:
        lock.release()
        os._exit(0)
    os.waitpid(child, 0)

    with pytest.raises(StoreUnavailable, match="already serves"):
        FileLock(lock.path).acquire()
    lock.release()


async def test_a_lock_file_that_root_makes_belongs_to_the_owner_of_the_database(path: Path) -> None:
    async with opening(path):
        pass
    path.with_name(f"{path.name}.lock").unlink()
    if os.geteuid() == 0:
        os.chown(path, SERVICE_USER, SERVICE_USER)

    async with opening(path):
        owners = {file.name: file.stat().st_uid for file in path.parent.iterdir() if file.name.startswith(path.name)}

    assert owners == dict.fromkeys(owners, owners[path.name])
    assert f"{path.name}.lock" in owners


@pytest.mark.parametrize(
    ("code", "needs_operator", "advice"),
    [
        (errno.EACCES, True, "as the service's user"),
        (errno.EROFS, True, "let that user write"),
        (errno.ENOSPC, False, "Free"),
    ],
)
def test_a_lock_file_that_its_user_may_not_write_needs_an_operator_and_a_full_disk_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, code: int, needs_operator: bool, advice: str
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", refuse)

    with pytest.raises(StoreUnavailable, match=advice) as refused:
        FileLock(tmp_path / "ringback.db.lock").acquire()

    assert refused.value.needs_operator is needs_operator


async def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="Check that its folder exists"):
        async with opening(tmp_path / "missing" / "ringback.db"):
            raise NotImplementedError


@pytest.fixture
def notes(path: Path) -> bytes:
    """A file of another program at the path of the database."""
    text = b"not a database, but a file of notes" * 100
    path.write_bytes(text)
    return text


async def test_a_file_that_is_no_database_is_reported_and_left_unchanged(path: Path, notes: bytes) -> None:
    with pytest.raises(StoreUnavailable, match="not a database"):
        async with opening(path):
            raise NotImplementedError

    with path.open("rb") as file:
        assert file.read() == notes


async def test_an_outdated_sqlite_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "SQLITE_VERSION_MIN", (99, 0))

    with pytest.raises(StoreUnavailable, match="too old"):
        async with opening(path):
            raise NotImplementedError


def test_a_database_that_cannot_use_wal_is_reported() -> None:
    with closing(sqlite3.connect(":memory:")) as memory, pytest.raises(StoreUnavailable, match="local disk"):
        database.enable_wal(memory)


async def test_closing_again_does_nothing(path: Path) -> None:
    store = SqliteStore(path, clock=FakeClock(), sealer=make_sealer())
    await store.close()
    await store.open(exclusive=True)
    await store.close()
    await store.close()

    async with opening(path) as again:
        assert await again.read(lambda tx: tx.api_keys.list_all()) == []
