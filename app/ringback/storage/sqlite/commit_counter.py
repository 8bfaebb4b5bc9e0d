"""COMMIT, and what belongs to it: counting it, and looking whether it went into the files that everybody else sees.

    UPDATE commit_count ─▶ COMMIT (durable) ─▶ count into the lock file ─▶ are the files still ours? ─▶ callers are told

The count in the lock file can only be behind the database's, or equal to it. A start that finds it ahead knows that commits
were lost that this file had acknowledged: its write-ahead log was removed after a crash, or an older backup was restored.
"""

import sqlite3
from contextlib import suppress
from typing import Final

from ringback.domain.errors import StoreUnavailable
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import SESSION_STATEMENTS, Statements
from ringback.storage.sqlite.file_lock import FileLock
from ringback.storage.sqlite.integrity import DatabaseIntegrity

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/commit_count.sql")


class CommitCounter:
    """Commits of one connection. `lock` is None for tools that write beside a service: theirs are not counted."""

    def __init__(
        self, connection: sqlite3.Connection, *, trust: DatabaseIntegrity, lock: FileLock | None = None
    ) -> None:
        self._connection = connection
        self._sql = Statements(connection, _SQL)
        self._integrity = trust
        self._lock = lock
        self._commit_count = 0 if lock is None else read_commit_count(connection)
        self._changes = connection.total_changes

    def prepare(self) -> bool:
        """Count what was done; whether anything was. A transaction that changed nothing costs no page and no fsync.

        Raises `StoreUnavailable` when it must not be acknowledged.
        """
        self._integrity.require_intact()
        wrote = self._connection.total_changes != self._changes
        if wrote and self._lock is not None:
            self._sql.execute("set", number=self._commit_count + 1)
        return wrote

    def commit_transaction(self, *, wrote: bool) -> None:
        """Make it durable: all that may wait for the disk, for a thread of its own.

        And no more than that: each statement and each look at a file gives up Python's lock, which a thread gets back from a
        busy event loop only after `sys.getswitchinterval`.
        """
        self._connection.execute(SESSION_STATEMENTS["commit"])
        if wrote:
            self._write_count_to_lock()

    def conclude(self, *, wrote: bool) -> None:
        """After it is durable. Raises `StoreUnavailable` when it must not be acknowledged all the same."""
        if wrote:
            self._integrity.require_files_unchanged()
        self._changes = self._connection.total_changes

    def _write_count_to_lock(self) -> None:
        if self._lock is not None:
            self._commit_count += 1
            with suppress(OSError):  # then it is behind, which says nothing wrong
                self._lock.write_commit_count(self._commit_count)


def read_commit_count(connection: sqlite3.Connection) -> int:
    (row,) = connection.execute(_SQL["get"]).fetchall()
    return int(row[0])


def require_no_missing_commits(connection: sqlite3.Connection, lock: FileLock, *, accept_missing: bool) -> None:
    """Raise `StoreUnavailable` when the lock file knows of more commits than the database holds; accepted, it forgets them."""
    stored, made = read_commit_count(connection), lock.read_commit_count()
    if made is not None and made > stored and not accept_missing:
        raise StoreUnavailable(
            f"The last {made - stored} commits of this database are missing: it holds {stored}, and its service had made {made} "
            f"(so says '{lock.path}'). Either its -wal file was removed after a crash, or an older backup was restored. Put "
            "the -wal file back if you have it. If the loss is meant, run `ringback doctor --accept-restore` once, then start.",
            needs_operator=True,
        )
    lock.write_commit_count(stored)
