"""Opens the SQLite files of the public libraries and the listener: private to their owner, durable, and never those of others.

The file is readable by its owner only, because it has resume tokens, results or conversations. A commit is on disk when it
returns. The database of another program, or of a later version of ringback, is refused before anything of it is changed.
"""

import os
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from weakref import WeakSet

FILE_MODE: Final = 0o600
_IN_MEMORY: Final = ":memory:"
_PRIMARY_CODE_MASK: Final = 0xFF
"""SQLite's extended error codes have the primary code in the lowest byte."""


class FileUnusable(Exception):
    """The file cannot be used. The text says why; the module that opens it adds what to do."""


class FileInUse(FileUnusable):
    """Another process holds the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """What a file holds, as the application id and the user version in SQLite's header say."""

    name: str
    """With an article, for messages: "an inbox"."""
    application_id: int | None
    """None if the file may have tables of its owner, beside ours."""
    version: int = 1
    schema: str
    """Creates the tables of this version. Processes that may create the file at the same time say IF NOT EXISTS."""
    upgrades: Mapping[int, str] = field(default_factory=dict[int, str])
    """By version, the statements that lead to the next one."""


class _ExclusiveConnection(sqlite3.Connection):
    """Has the file for itself. Its copy in a forked child is never closed."""


_exclusive_connections: Final = WeakSet[_ExclusiveConnection]()


def open_private_file(
    path: Path,
    file_format: FileFormat,
    *,
    busy_seconds: float,
    is_exclusive: bool = False,
    check_same_thread: bool = True,
) -> sqlite3.Connection:
    """Open the file, or create it, with statements that commit by themselves unless BEGIN was executed.

    `busy_seconds` limits the wait for other processes. With `is_exclusive`, no other process can use the file until it is
    closed. Raises `FileUnusable`, and `FileInUse` if the wait was too short.
    """
    if str(path) == _IN_MEMORY:
        raise FileUnusable(f"{_IN_MEMORY} is no file, and what it holds ends with its connection.")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, FILE_MODE))
        connection = sqlite3.connect(
            path,
            timeout=busy_seconds,
            isolation_level=None,
            check_same_thread=check_same_thread,
            factory=_ExclusiveConnection if is_exclusive else sqlite3.Connection,
        )
    except (OSError, sqlite3.Error) as error:
        raise FileUnusable(f"{path} cannot be opened: {error}.") from error
    if isinstance(connection, _ExclusiveConnection):
        _exclusive_connections.add(connection)
    try:
        _prepare(connection, path, file_format, is_exclusive=is_exclusive)
    except sqlite3.Error as error:
        connection.close()
        raise describe_error(error, path, file_format) from error
    except BaseException:
        connection.close()
        raise
    return connection


def describe_error(error: sqlite3.Error, path: Path, file_format: FileFormat) -> FileUnusable:
    """The error of SQLite in words about this file."""
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE_MASK
    if code == sqlite3.SQLITE_BUSY:
        return FileInUse(f"Another process uses {path}.")
    if code == sqlite3.SQLITE_NOTADB:
        return FileUnusable(f"{path} is not {file_format.name}: {error}.")
    return FileUnusable(f"{path} cannot be used: {error}.")


def _prepare(connection: sqlite3.Connection, path: Path, file_format: FileFormat, *, is_exclusive: bool) -> None:
    if is_exclusive:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    version = _read_version(connection, path, file_format)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if is_exclusive:  # a transaction takes the lock
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
    if version is None:
        header = "" if file_format.application_id is None else _header(file_format.application_id, file_format.version)
        connection.executescript(f"BEGIN IMMEDIATE; {file_format.schema}; {header} COMMIT;")
        return
    for earlier in range(version, file_format.version):
        header = f"PRAGMA user_version = {earlier + 1};"
        connection.executescript(f"BEGIN IMMEDIATE; {file_format.upgrades[earlier]}; {header} COMMIT;")


def _header(application_id: int, version: int) -> str:
    return f"PRAGMA application_id = {application_id}; PRAGMA user_version = {version};"


def _read_version(connection: sqlite3.Connection, path: Path, file_format: FileFormat) -> int | None:
    """The version of the file; None if its tables are to be created. Refuses the files of others."""
    count, application_id, version = connection.execute(
        "SELECT count(*), (SELECT * FROM pragma_application_id), (SELECT * FROM pragma_user_version) FROM sqlite_schema"
    ).fetchone()
    if file_format.application_id is None or count == 0:
        return None
    if application_id != file_format.application_id:
        raise FileUnusable(f"{path} is another program's database, and not {file_format.name}.")
    if version > file_format.version:
        raise FileUnusable(f"A later version of ringback made {path}: update ringback.")
    return int(version)


def _keep_copies_open() -> None:
    """In a forked child. SQLite would take the parent's lock for the child's, and remove the log to which the parent writes.

    It would do so when the copy is closed, which also happens when the child's interpreter ends, unless a reference is left.
    """
    with suppress(ImportError, AttributeError):  # only CPython closes what is left at its end
        import ctypes  # noqa: PLC0415 - few processes fork with an open inbox

        for connection in _exclusive_connections:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_copies_open)
