"""COMMIT, its count, and the check that it went into the files at the database's path.

    UPDATE commit_count ─▶ COMMIT (durable) ─▶ count to the lock file ─▶ are the files unchanged? ─▶ callers continue

The count in the lock file is never ahead of the database's. If it is at a start, the database has lost acknowledged commits:
its write-ahead log was removed after a crash or is damaged, or an older backup was restored.
"""

import sqlite3
from contextlib import suppress
from typing import Final

from ringback.domain.errors import StoreUnavailable
from ringback.storage.sqlite.database import SESSION_STATEMENTS
from ringback.storage.sqlite.file_lock import FileLock
from ringback.storage.sqlite.integrity import DatabaseIntegrity
from ringback.storage.sqlite.statements import load_sql

_SQL: Final = load_sql("commit_count")


class CommitCounter:
    """Commits of one connection. `lock` is None for tools that write beside a service: their commits are not counted."""

    def __init__(
        self, connection: sqlite3.Connection, *, trust: DatabaseIntegrity, lock: FileLock | None = None
    ) -> None:
        self._connection = connection
        self._integrity = trust
        self._lock = lock
        self._commit_count = 0 if lock is None else read_commit_count(connection)
        self._changes = connection.total_changes

    def begin(self) -> None:
        """A transaction has begun. What an earlier one changed is committed or rolled back."""
        self._changes = self._connection.total_changes

    def prepare(self) -> bool:
        """Count the transaction if it changed anything, and return whether it did: one without changes costs no fsync.

        Raises `StoreUnavailable` if it must not be acknowledged.
        """
        self._integrity.require_intact()
        wrote = self._connection.total_changes != self._changes
        if wrote and self._lock is not None:
            self._connection.execute(_SQL["set"], {"number": self._commit_count + 1})
        return wrote

    def commit_transaction(self, *, wrote: bool) -> None:
        """Make it durable. Runs in a thread of its own, because it waits for the disk.

        It does nothing else: each statement and each check of a file releases Python's lock, which a thread gets back from a
        busy event loop only after `sys.getswitchinterval`.
        """
        self._connection.execute(SESSION_STATEMENTS["commit"])
        if wrote:
            self._write_count_to_lock()

    def conclude(self, *, wrote: bool) -> None:
        """Check the files after a durable commit. Raises `StoreUnavailable` if it must not be acknowledged."""
        if wrote:
            self._integrity.require_files_unchanged()

    def _write_count_to_lock(self) -> None:
        if self._lock is not None:
            self._commit_count += 1
            with suppress(OSError):  # a count that is behind does no harm
                self._lock.write_commit_count(self._commit_count)


def read_commit_count(connection: sqlite3.Connection) -> int:
    (row,) = connection.execute(_SQL["get"]).fetchall()
    return int(row[0])


def require_no_missing_commits(connection: sqlite3.Connection, lock: FileLock, *, accept_missing: bool) -> None:
    """Raise `StoreUnavailable` if the lock file counts more commits than the database; accepting resets its count."""
    stored, made = read_commit_count(connection), lock.read_commit_count()
    if made is not None and made > stored and not accept_missing:
        raise StoreUnavailable(
            f"The last {made - stored} commits of this database are missing: it has {stored}, and '{lock.path}' "
            f"counts {made}. Its -wal file was removed after a crash or is damaged, or an older backup was restored. "
            "Put an undamaged -wal file back if you have one, before you accept anything. If the loss is meant, run `ringback "
            "doctor --accept-restore` once, then start.",
            needs_operator=True,
        )
    lock.write_commit_count(stored)
