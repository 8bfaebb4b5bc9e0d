"""A mark in the database file while a service uses it, so that a copy of this file alone is recognised.

While a service runs, its newest commits are in the -wal file. A copy of the .db file alone is an older state, on a young
service an empty one, and to SQLite it is a sound database. So the file's header says whether the file is complete:

    a service opens the file      user_version = 1, checkpointed into the file itself
    it closes the file            user_version = 0; SQLite then moves the rest of the log into the file
    it was killed                 user_version = 1, and the -wal file is there

A marked file without a -wal file is complete only if the lock file beside it says so (`commit_counter`): another command may
have moved the log of a killed service into the file. Without a lock file it is such a copy.
"""

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

from ringback.domain.errors import StoreUnavailable
from ringback.storage.sqlite.database import SESSION_STATEMENTS

_OFFSET: Final = 60
"""Of the user version in the header (SQLite's file format, §1.3.14)."""
_IN_USE: Final = 1


def require_not_copied_alone(path: Path, *, commit_count: int | None) -> None:
    """Raise `StoreUnavailable` if the file lacks commits that were in a -wal file. Ask before SQLite opens it.

    `commit_count` is the lock file's; None if it has none.
    """
    if commit_count is None and _is_marked(path) and not _has_log(path):
        raise StoreUnavailable(
            f"'{path}' was copied while a service used it, without its -wal file, so its newest commits are missing; on a "
            "young service all of them. Copy the -wal file, too, or use `ringback backup` and `ringback restore`. If the loss "
            "is meant, run `ringback doctor --accept-restore` once, then start.",
            needs_operator=True,
        )


def mark_in_use(connection: sqlite3.Connection) -> None:
    """Mark the file itself, not only its log. Another process that reads an old state may delay that for a moment."""
    connection.execute(SESSION_STATEMENTS["mark_in_use"])
    connection.execute(SESSION_STATEMENTS["move_log_into_file"]).fetchall()


def mark_complete(connection: sqlite3.Connection) -> None:
    """Before the last connection closes, which moves the log into the file. A full disk leaves the mark, and the log."""
    with suppress(sqlite3.Error):
        connection.execute(SESSION_STATEMENTS["mark_complete"])


def _is_marked(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(_OFFSET)
            return int.from_bytes(file.read(4), "big") == _IN_USE
    except OSError:
        return False


def _has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0
