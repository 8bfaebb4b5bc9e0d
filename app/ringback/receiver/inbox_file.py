"""The inbox's SQLite file: every statement, and the bounds on what is kept. Synchronous; `SQLiteInbox` runs it in a thread.

    messages   one row for each message: pending, or ended (handled or given up)
               body: while pending; after the end while a waiter may still receive the callback
    cursor     the place in the event log from which missed events are fetched

A process that has opened the file holds SQLite's exclusive lock on it until it closes it or dies.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ringback.private_sqlite import FileFormat, FileInUse, FileUnusable, open_private_file
from ringback.receiver.deduplicator import FETCHED

APPLICATION_ID: Final = 0x52424B49
"""`RBKI` in ASCII: marks the file as an inbox, for SQLite's `application_id`."""
LOCK_WAIT_SECONDS: Final = 5.0
"""How long a starting process waits for the file of a process that is ending."""
PRUNE_EVERY_MESSAGES: Final = 1_000
"""Old rows are deleted after this many new ones, so the file exceeds its bounds by no more than that."""

_MESSAGES: Final = """
CREATE TABLE messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    subscription_id TEXT,
    order_key TEXT NOT NULL,
    body BLOB,
    arrived_at REAL NOT NULL,
    ended_at REAL,
    given_up INTEGER NOT NULL DEFAULT 0,
    UNIQUE (message_id, scope)
) STRICT;
CREATE INDEX messages_pending ON messages (number) WHERE ended_at IS NULL;
CREATE INDEX messages_ended ON messages (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX messages_waitable ON messages (number) WHERE ended_at IS NOT NULL AND body IS NOT NULL;
"""
_SCHEMA: Final = f"""
{_MESSAGES}
CREATE TABLE cursor (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), value TEXT NOT NULL) STRICT;
"""
_UPGRADE_FROM_1: Final = f"""
CREATE TABLE earlier AS SELECT * FROM messages;
DROP TABLE messages;
{_MESSAGES}
INSERT INTO messages (number, message_id, scope, subscription_id, order_key, body, arrived_at, ended_at, given_up)
    SELECT number, message_id, subscription_id, nullif(nullif(subscription_id, ''), '{FETCHED}'),
           order_key, body, arrived_at, ended_at, given_up FROM earlier;
DROP TABLE earlier;
"""  # noqa: S608 - constants
"""In version 1 a message was known by the subscription of its header. With the callbacks of Ringback, that id is the scope."""
_FORMAT: Final = FileFormat(
    name="an inbox", application_id=APPLICATION_ID, version=2, schema=_SCHEMA, upgrades={1: _UPGRADE_FROM_1}
)


class InboxUnavailable(Exception):
    """The inbox's file cannot be used. The text says why, and what to do."""


class InboxFull(Exception):
    """So many messages wait for their handlers that no more are accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxLimits:
    pending_max: int
    pending_bytes_max: int
    remembered_max: int
    remembered_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """A pending message; `number` is its place in the order of arrival."""

    number: int
    order_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBody:
    subscription_id: str | None
    message_id: str
    body: bytes
    arrived_at: float
    """Seconds since the epoch."""


class InboxFile:
    def __init__(self, path: Path, limits: InboxLimits) -> None:
        self._limits = limits
        self._connection = _open_file(path)
        self._added_since_pruning = 0
        self._count_pending()

    def close(self) -> None:
        self._connection.close()

    def commit_together(self, works: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run each of them, and commit all at once, because a commit waits for the disk.

        Returns their results; in the place of one that raised, its exception. If the commit fails, none has an effect, and the
        exception of the commit is raised.
        """
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            outcomes = [self._run_in_savepoint(work) for work in works]
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._count_pending()
            raise
        return outcomes

    # -- writes: run by `commit_together` --

    def add(
        self,
        message_id: str,
        scope: str,
        *,
        subscription_id: str | None,
        order_key: str,
        body: bytes,
        cursor: str | None,
        now: float,
    ) -> int | None:
        """Store a message and return its number; None if its scope has it already. `cursor` is saved if there is none yet."""
        if self._is_known(message_id, scope):
            return None
        if (
            self._pending >= self._limits.pending_max
            or self._pending_bytes + len(body) > self._limits.pending_bytes_max
        ):
            raise InboxFull
        number = self._connection.execute(
            "INSERT INTO messages (message_id, scope, subscription_id, order_key, body, arrived_at)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (message_id, scope, subscription_id, order_key, body, now),
        ).lastrowid
        if cursor is not None:
            self._connection.execute("INSERT OR IGNORE INTO cursor VALUES (1, ?)", (cursor,))
        self._added_since_pruning += 1
        if self._added_since_pruning >= PRUNE_EVERY_MESSAGES:
            self.prune(now)
        self._pending, self._pending_bytes = self._pending + 1, self._pending_bytes + len(body)
        return number

    def record_end(self, number: int, *, given_up: bool, keep_body: bool, now: float) -> None:
        (length,) = self._connection.execute("SELECT length(body) FROM messages WHERE number = ?", (number,)).fetchone()
        self._connection.execute(
            "UPDATE messages SET ended_at = ?, given_up = ?, body = iif(?, body, NULL) WHERE number = ?",
            (now, given_up, keep_body, number),
        )
        self._pending, self._pending_bytes = self._pending - 1, self._pending_bytes - length

    def drop_bodies(self, numbers: Sequence[int]) -> None:
        self._connection.executemany(
            "UPDATE messages SET body = NULL WHERE number = ? AND ended_at IS NOT NULL", [(each,) for each in numbers]
        )

    def save_cursor(self, cursor: str) -> None:
        self._connection.execute("INSERT OR REPLACE INTO cursor VALUES (1, ?)", (cursor,))

    def prune(self, now: float) -> None:
        """Forget ended messages that are too old, and the oldest of too many."""
        self._added_since_pruning = 0
        self._connection.execute("DELETE FROM messages WHERE ended_at < ?", (now - self._limits.remembered_seconds,))
        (kept,) = self._connection.execute("SELECT count(*) FROM messages WHERE ended_at IS NOT NULL").fetchone()
        self._connection.execute(
            "DELETE FROM messages WHERE number IN"
            " (SELECT number FROM messages WHERE ended_at IS NOT NULL ORDER BY ended_at LIMIT ?)",
            (max(0, kept - self._limits.remembered_max),),
        )

    # -- reads --

    def read_pending(self) -> list[StoredMessage]:
        rows = self._connection.execute("SELECT number, order_key FROM messages WHERE ended_at IS NULL ORDER BY number")
        return [StoredMessage(number=number, order_key=order_key) for number, order_key in rows]

    def read_body(self, number: int) -> StoredBody:
        row = self._connection.execute(
            "SELECT subscription_id, message_id, body, arrived_at FROM messages WHERE number = ?", (number,)
        ).fetchone()
        return StoredBody(subscription_id=row[0], message_id=row[1], body=row[2], arrived_at=row[3])

    def read_waitable(self, limit: int) -> list[int]:
        """The numbers of the newest handled messages whose bodies are kept, oldest first."""
        rows = self._connection.execute(
            "SELECT number FROM messages WHERE ended_at IS NOT NULL AND body IS NOT NULL AND NOT given_up"
            " ORDER BY number DESC LIMIT ?",
            (limit,),
        )
        return sorted(number for (number,) in rows)

    def read_cursor(self) -> str | None:
        row = self._connection.execute("SELECT value FROM cursor").fetchone()
        return None if row is None else row[0]

    def _is_known(self, message_id: str, scope: str) -> bool:
        known = self._connection.execute(
            "SELECT 1 FROM messages WHERE message_id = :id AND (scope IN (:scope, :fetched) OR :scope = :fetched) LIMIT 1",
            {"id": message_id, "scope": scope, "fetched": FETCHED},
        ).fetchone()
        return known is not None

    def _run_in_savepoint(self, work: Callable[[], Any]) -> Any:
        self._connection.execute("SAVEPOINT one")
        try:
            outcome = work()
        except Exception as error:  # noqa: BLE001 - it belongs to the one who waits for this work
            self._connection.execute("ROLLBACK TO one")
            outcome = error
        self._connection.execute("RELEASE one")
        return outcome

    def _count_pending(self) -> None:
        self._pending, self._pending_bytes = self._connection.execute(
            "SELECT count(*), coalesce(sum(length(body)), 0) FROM messages WHERE ended_at IS NULL"
        ).fetchone()


def _open_file(path: Path) -> sqlite3.Connection:
    try:
        return open_private_file(path, _FORMAT, busy_seconds=LOCK_WAIT_SECONDS, is_exclusive=True)
    except FileInUse:
        raise InboxUnavailable(
            f"Another process uses the inbox {path}. An inbox belongs to one process: run one worker, or give each its own."
        ) from None
    except FileUnusable as error:
        raise InboxUnavailable(f"{error} Choose another file for the inbox.") from error
