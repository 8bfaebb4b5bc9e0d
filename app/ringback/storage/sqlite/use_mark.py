"""A mark in the database file while a service uses it, so that a copy of this file alone is recognised, and one of a move.

While a service runs, its newest commits are in the -wal file. A copy of the .db file alone is an older state, on a young
service an empty one, and to SQLite it is a sound database. So the file's header says whether the file is complete:

    a service opens the file      user_version = 1, checkpointed into the file itself
    it closes the file            user_version = 0; SQLite then moves the rest of the log into the file
    it was killed                 user_version = 1, and the -wal file is there
    all of it was copied          user_version = 2: a service goes on with another database (`storage.copying`)

A marked file without a -wal file is complete only if the lock file beside it says so (`commit_counter`): another command may
have moved the log of a killed service into the file. Without a lock file it is such a copy. A marked file with a damaged -wal
file is not opened at all, because SQLite would ignore the rest of the log and then remove it (`log_check`).

A moved file is refused to services, because both would run the same calls. The lock file says where it was moved. Commands that
read are allowed. A service that opens it all the same replaces the mark with its own.
"""

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

from ringback.domain.errors import StoreUnavailable
from ringback.storage.sqlite.database import SESSION_STATEMENTS
from ringback.storage.sqlite.file_lock import LOCK_FILE_SUFFIX, FileLock
from ringback.storage.sqlite.log_check import count_unreadable_commits

_OFFSET: Final = 60
"""Of the user version in the header (SQLite's file format, §1.3.14)."""
_IN_USE: Final = 1
_MOVED: Final = 2


def require_whole(path: Path, *, commit_count: int | None) -> None:
    """Raise `StoreUnavailable` if SQLite would not see commits that are or were in a -wal file. Ask before it opens the file.

    `commit_count` is the lock file's; None if it has none. No service may be writing.
    """
    if _read_mark(path) != _IN_USE:
        return
    if commit_count is None and not _has_log(path):
        raise StoreUnavailable(
            f"'{path}' was copied while a service used it, without its -wal file, so its newest commits are missing; on a "
            "young service all of them. Copy the -wal file, too, or use `ringback backup` and `ringback restore`. If the loss "
            "is meant, run `ringback doctor --accept-restore` once, then start.",
            needs_operator=True,
        )
    if unreadable := count_unreadable_commits(path):
        raise StoreUnavailable(
            f"'{path}-wal' is damaged: {unreadable} commits behind the damaged place cannot be read. Nothing was changed. Put "
            "an undamaged copy of this file there, or restore a backup: ringback restore. Keep a copy of the damaged file "
            "before you accept the loss with `ringback doctor --accept-restore`, which removes it.",
            needs_operator=True,
        )


def require_whole_if_unused(path: Path) -> None:
    """The same for a process that does not serve the file. Beside a running service there is nothing to check."""
    lock = FileLock(path.with_name(f"{path.name}{LOCK_FILE_SUFFIX}"))
    if _read_mark(path) == _IN_USE and not lock.is_held():
        require_whole(path, commit_count=lock.peek_commit_count())


def require_not_moved(path: Path) -> None:
    """Raise `StoreUnavailable` if a copy of this file was finished."""
    if _read_mark(path) == _MOVED:
        moved_to = FileLock(path.with_name(f"{path.name}{LOCK_FILE_SUFFIX}")).peek_moved_to() or "another database"
        raise StoreUnavailable(
            f"'{path}' was moved to {moved_to} with `ringback copy`. Set RINGBACK_DATABASE_URL to that database, for every "
            "node and every command: a service on each of the two would run the same calls. If a service is to go on with this "
            "file all the same, run `ringback doctor --accept-restore` once, then start.",
            needs_operator=True,
        )


def mark_moved(connection: sqlite3.Connection) -> bool:
    """Whether the file itself could be marked."""
    try:
        connection.execute(SESSION_STATEMENTS["mark_moved"])
        connection.execute(SESSION_STATEMENTS["move_log_into_file"]).fetchall()
    except sqlite3.Error:
        return False
    return True


def mark_in_use(connection: sqlite3.Connection) -> None:
    """Mark the file itself, not only its log. Another process that reads an old state may delay that for a moment."""
    connection.execute(SESSION_STATEMENTS["mark_in_use"])
    connection.execute(SESSION_STATEMENTS["move_log_into_file"]).fetchall()


def mark_complete(connection: sqlite3.Connection) -> None:
    """Before the last connection closes, which moves the log into the file. A full disk leaves the mark, and the log."""
    with suppress(sqlite3.Error):
        connection.execute(SESSION_STATEMENTS["mark_complete"])


def _read_mark(path: Path) -> int:
    try:
        with path.open("rb") as file:
            file.seek(_OFFSET)
            return int.from_bytes(file.read(4), "big")
    except OSError:
        return 0


def _has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0
