"""Copies a database while a service uses it, and puts a copy into its place.

The copy is one snapshot: the source's read transaction stays open from the first page to the last, so the service's commits
neither change the copy nor start it anew. Meanwhile its -wal file grows, because no checkpoint passes the snapshot.
"""

import os
import sqlite3
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Final

from ringback.domain.errors import StoreUnavailable
from ringback.storage.sqlite.commit_counter import read_commit_count, require_no_missing_commits
from ringback.storage.sqlite.database import (
    SESSION_STATEMENTS,
    connect,
    explain_opening,
    primary_result_code,
    to_store_unavailable,
)
from ringback.storage.sqlite.file_lock import LOCK_FILE_SUFFIX, FileLock
from ringback.storage.sqlite.integrity import DATABASE_FILE_SUFFIXES
from ringback.storage.sqlite.store import lock_for_database
from ringback.storage.sqlite.use_mark import mark_complete

STEP_PAGES: Final = 1_000
"""Pages that are copied between two reports: 4 MB, some milliseconds of a disk that the service needs, too."""
OPEN_LOCK_WAIT_SECONDS: Final = 5.0
"""As long as the opening of a store waits for another process that repairs the log's index."""

OnStep = Callable[[int, int], None]
"""Called after each step with the pages that remain and the pages of the database."""


def copy_database_file(source: Path, target: Path, *, on_step: OnStep) -> int:
    """Copy the database into a new file, readable by its owner only, and return its number of commits.

    The new file is complete without a -wal file, and synced. Blocks until it is done; raises `StoreUnavailable`.
    """
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with (
            closing(connect(source, lock_wait_seconds=OPEN_LOCK_WAIT_SECONDS)) as reader,
            closing(sqlite3.connect(target, isolation_level=None)) as writer,
        ):
            reader.execute(SESSION_STATEMENTS["begin_reading"])
            commits = read_commit_count(reader)  # the first read, which takes the snapshot
            reader.backup(writer, pages=STEP_PAGES, progress=lambda _, remaining, total: on_step(remaining, total))
            writer.execute(SESSION_STATEMENTS["keep_no_log"]).fetchall()
            mark_complete(writer)
            _require_undamaged(writer, source)
    except sqlite3.Error as error:
        if primary_result_code(error) != sqlite3.SQLITE_FULL:
            raise explain_opening(error, source) from error
        raise StoreUnavailable(
            f"The disk of '{target.parent}' is full. Free some space there, then try again."
        ) from error
    return commits


def _require_undamaged(copy: sqlite3.Connection, source: Path) -> None:
    (found,) = copy.execute(SESSION_STATEMENTS["check_integrity"]).fetchone()
    if found != "ok":
        raise StoreUnavailable(
            f"The database '{source}' is damaged ({found}), so a copy of it is no backup. Run: ringback doctor",
            needs_operator=True,
        )


def require_unused(path: Path) -> None:
    """Raise `StoreUnavailable` while a service uses the database."""
    if path.exists():
        lock = lock_for_database(path)
        lock.acquire()
        lock.release()


def replace_database_file(path: Path, drafts: Mapping[str, Path], *, now: datetime) -> list[Path]:
    """Put drafts of the same folder into place, and return the files that were moved aside for them.

    `drafts` has the draft of each file by the suffix of its name: "" is the database, which is complete without a log. Earlier
    files of these names stay, with the time in their names. The lock file's count becomes that of the new database: the commits
    that it lacks are accepted as lost. Raises `StoreUnavailable` while a service uses the database.
    """
    lock = lock_for_database(path)
    lock.acquire()
    try:
        moved = _move_aside(path, f"before-restore-{now:%Y%m%dT%H%M%SZ}", {*DATABASE_FILE_SUFFIXES, *drafts})
        owner = (moved[-1] if moved else path.parent).stat()
        for suffix, draft in sorted(drafts.items(), reverse=True):  # the database last
            _give_to(draft, owner)
            draft.replace(_with_suffix(path, suffix))
        _accept_commits(path, lock)
        _give_to(_with_suffix(path, LOCK_FILE_SUFFIX), owner)
    finally:
        lock.release()
    return moved


def _give_to(file: Path, owner: os.stat_result) -> None:
    """To the service's user, if root restores: only the owner of the database may open it."""
    if os.geteuid() == 0:
        os.chown(file, owner.st_uid, owner.st_gid)


def _move_aside(path: Path, label: str, suffixes: Collection[str]) -> list[Path]:
    """Rename the database's files so that they are a database again: `NAME.LABEL`, `NAME.LABEL-wal`.

    The database is the last: a service that starts after a kill between two renames would make a new one in its place, and
    SQLite would remove the log.
    """
    aside = _choose_name(path, label, suffixes)
    pairs = [(_with_suffix(path, suffix), _with_suffix(aside, suffix)) for suffix in sorted(suffixes, reverse=True)]
    found = [(before, after) for before, after in pairs if before.exists()]
    for before, after in found:
        before.rename(after)
    return [after for _, after in found]


def _choose_name(path: Path, label: str, suffixes: Collection[str]) -> Path:
    """A name that no file has, with any of these suffixes: a rename replaces what is there."""
    labels = chain([label], (f"{label}-{number}" for number in count(2)))
    names = (path.with_name(f"{path.name}.{each}") for each in labels)
    return next(name for name in names if not any(_with_suffix(name, suffix).exists() for suffix in suffixes))


def _accept_commits(path: Path, lock: FileLock) -> None:
    try:
        with closing(connect(path, lock_wait_seconds=OPEN_LOCK_WAIT_SECONDS)) as connection:
            require_no_missing_commits(connection, lock, accept_missing=True)
    except sqlite3.Error as error:
        raise to_store_unavailable(error) from error


def _with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}{suffix}")
