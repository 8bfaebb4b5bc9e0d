"""Connections to the file, and which of SQLite's errors are the machine's."""

import os
import sqlite3
from pathlib import Path
from typing import Final

from ringback.domain.errors import StoreUnavailable
from ringback.storage.sqlite.statements import load_sql

SQLITE_VERSION_MIN: Final = (3, 38)
"""RETURNING came in 3.35, STRICT tables in 3.37, JSON functions as a fixed part in 3.38."""
STATEMENTS_CACHED: Final = 256
"""More than all statements in sql/, so that a connection compiles each of them once."""

SESSION_STATEMENTS: Final = load_sql("session")

_UNAVAILABLE_CODES: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)
"""Result codes caused by the disk, its permissions or another process, not by a wrong statement."""
DAMAGE_CODES: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
RECOVERY_ADVICE: Final = "restore a backup, or recover what is readable: sqlite3 DATABASE .recover"


def create_database_file(path: Path) -> None:
    """Create the database readable for its owner only. SQLite gives its -wal and -shm the same mode."""
    if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
        raise StoreUnavailable(
            f"SQLite {sqlite3.sqlite_version} is too old: 3.38 is needed. Use a newer Python.", needs_operator=True
        )
    _require_no_folder(path)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreUnavailable(
            f"The database file '{path}' cannot be opened: {error.strerror}. Check that its folder exists and is yours."
        ) from error


def _require_no_folder(path: Path) -> None:
    """Container runtimes make a folder of a file that is mounted and does not exist."""
    if path.is_dir():
        raise StoreUnavailable(
            f"The database '{path}' is a folder. Name a file in it, such as {path / 'ringback.db'}.",
            needs_operator=True,
        )


def connect(path: Path, *, lock_wait_seconds: float) -> sqlite3.Connection:
    """A connection whose commits are explicit and durable.

    Two threads may use it, one after the other: the event loop's runs statements, another one commits.
    """
    connection = open_connection(path, lock_wait_seconds=lock_wait_seconds)
    try:
        connection.execute(SESSION_STATEMENTS["sync_every_commit"])
        connection.execute(SESSION_STATEMENTS["check_references"])
        connection.execute(SESSION_STATEMENTS["checkpoint_rarely"])
        connection.execute(SESSION_STATEMENTS["limit_log"])
        connection.execute(SESSION_STATEMENTS["cache_for_writer"])
        connection.execute(SESSION_STATEMENTS["keep_journals_in_memory"])
    except sqlite3.Error:
        connection.close()  # SQLite opens a file that is no database without an error; the first statement fails
        raise
    return connection


def open_connection(path: Path, *, lock_wait_seconds: float) -> sqlite3.Connection:
    """A connection that has read nothing of its file yet, not even the tables, which takes 2 ms."""
    _require_no_folder(path)
    connection = sqlite3.connect(
        path,
        timeout=lock_wait_seconds,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS_CACHED,
    )
    connection.row_factory = sqlite3.Row
    return connection


def enable_wal(connection: sqlite3.Connection) -> None:
    """Let readers and the writer work at once. SQLite stores this setting in the file."""
    (mode,) = connection.execute(SESSION_STATEMENTS["use_wal"]).fetchone()
    if mode != "wal":
        raise StoreUnavailable(
            "This file system does not support a database that several connections share. Use a local disk.",
            needs_operator=True,
        )


def primary_result_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code. Errors of the module itself have none; they count as SQLITE_ERROR."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def to_caller_error(error: Exception) -> Exception:
    """The error for the caller: `StoreUnavailable` if the machine refused, otherwise the error itself."""
    if isinstance(error, sqlite3.Error) and primary_result_code(error) in _UNAVAILABLE_CODES:
        return to_store_unavailable(error)
    return error


def explain_opening(error: sqlite3.Error, path: Path) -> StoreUnavailable:
    """The error of a database that cannot be opened. It names the folder whose disk is full or cannot be written."""
    folder = path.absolute().parent
    if primary_result_code(error) in DAMAGE_CODES:
        return StoreUnavailable(
            f"The database '{path}' is damaged ({error}). Nothing was changed. Stop the service, then {RECOVERY_ADVICE}",
            needs_operator=True,
        )
    if primary_result_code(error) == sqlite3.SQLITE_READONLY:
        return StoreUnavailable(
            f"The database cannot be written: {error}. Nothing was changed. Give this user write access to '{folder}' and to "
            "the files in it, on a disk that is not read-only.",
            needs_operator=True,
        )
    if primary_result_code(error) != sqlite3.SQLITE_FULL and _has_space(folder):
        return to_store_unavailable(error)
    return StoreUnavailable(
        f"The disk of the database is full: '{folder}'. Nothing was changed. Free some space there, then start again."
    )


def _has_space(folder: Path) -> bool:
    """Whether a page fits. SQLite reports a full disk as an I/O error where it maps the index of the log."""
    try:
        return os.statvfs(folder).f_bavail > 0
    except OSError:
        return True


def to_store_unavailable(error: BaseException) -> StoreUnavailable:
    if isinstance(error, StoreUnavailable):
        return error
    return StoreUnavailable(f"The database cannot be used now: {error}. Nothing was changed; try again.")
