"""The inbox's SQLite file: every statement, and the bounds on what is kept. Synchronous; `InboxWriter` runs it in a thread.

What every inbox promises:

    exactly once    a message is stored once in its scope, and known again while its row is kept
    in order        numbers grow with arrival, and `read_pending` lists by them
    at least once   a message stays pending, with its body, until its end is recorded

A receiver acknowledges a sender once `add` is on disk, and refuses more than it has room for. A listener stores what it has
read together with the place after it (`add_all`), counts attempts, and can let what was given up wait again.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ringback.receiver.deduplicator import FETCHED, KEY_SCOPE

PRUNE_EVERY_MESSAGES: Final = 1_000
"""Old rows are deleted after this many new ones, so the file exceeds its bounds by no more than that."""
_CURSOR: Final = "cursor"
"""The setting with the place in the event log from which the file's owner reads on."""
_CURSOR_NUMBER: Final = "cursor_number"
"""The setting with the number of the newest message when the cursor was saved."""
_FIRST_CURSOR: Final = "first_cursor"
"""The setting with the place at which a listener began."""


class InboxFull(Exception):
    """So many messages wait for their handlers that no more are accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxLimits:
    pending_max: float
    """Infinite, like the bytes, if those who add messages wait for room by themselves."""
    pending_bytes_max: float
    remembered_max: int
    """Ended messages whose repetition is recognised."""
    remembered_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    message_id: str
    scope: str
    """Within which copies are recognised."""
    subscription_id: str | None = None
    order_key: str
    """Messages with the same key are handled one at a time."""
    cursor: str | None = None
    """The place after the message in the event log, if it was read from there."""
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """A pending message; `number` is its place in the order of arrival."""

    number: int
    message_id: str
    order_key: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBody:
    subscription_id: str | None
    message_id: str
    body: bytes
    arrived_at: float
    """Seconds since the epoch."""


class InboxFile:
    def __init__(self, connection: sqlite3.Connection, limits: InboxLimits) -> None:
        """`connection`: as `open_private_file` opens it, to a file with `inbox_schema.SCHEMA`."""
        self._limits = limits
        self._connection = connection
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

    def add(self, message: NewMessage, *, now: float, start_cursor: str | None = None) -> int | None:
        """Store a message and return its number; None if its scope has it already.

        `start_cursor` becomes the inbox's cursor if there is none yet. Raises `InboxFull`.
        """
        if self._is_known(message.message_id, message.scope):
            return None
        if (
            self._pending >= self._limits.pending_max
            or self._pending_bytes + len(message.body) > self._limits.pending_bytes_max
        ):
            raise InboxFull
        number = self._insert(message, now)
        if start_cursor is not None:
            started = ((_CURSOR, start_cursor), (_CURSOR_NUMBER, str(number)))
            self._connection.executemany("INSERT OR IGNORE INTO settings VALUES (?, ?)", started)
        self._added_since_pruning += 1
        if self._added_since_pruning >= PRUNE_EVERY_MESSAGES:
            self.prune(now)
        self._pending, self._pending_bytes = self._pending + 1, self._pending_bytes + len(message.body)
        return number

    def add_all(self, messages: Sequence[NewMessage], *, cursor: str | None, now: float) -> list[int | None]:
        """Store messages and the cursor after them, all or none. Returns what `add` returns for each."""
        numbers = [self.add(message, now=now) for message in messages]
        if cursor is not None:
            self.save_cursor(cursor)
        return numbers

    def record_failure(self, number: int, reason: str) -> None:
        self._connection.execute(
            "UPDATE messages SET attempts = attempts + 1, last_error = ? WHERE number = ?", (reason, number)
        )

    def retry_given_up(self) -> int:
        """Let the messages that were given up wait again. Returns their number."""
        count = self._connection.execute(
            "UPDATE messages SET ended_at = NULL, given_up = 0, attempts = 0 WHERE ended_at IS NOT NULL AND given_up"
        ).rowcount
        self._count_pending()
        return count

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
        _, newest = self._read_range()
        self.write_settings({_CURSOR: cursor, _CURSOR_NUMBER: str(newest)})

    def write_settings(self, settings: Mapping[str, str]) -> None:
        self._connection.executemany("INSERT OR REPLACE INTO settings VALUES (?, ?)", settings.items())

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
        self._pass_forgotten()

    def _pass_forgotten(self) -> None:
        """Move the cursor past forgotten messages: a start that reads the log from before them would hand them over again.

        Everything at or before the cursor of a callback was delivered or given up when the callback was sent. That of one in
        the middle of the remembered ones is behind the forgotten ones, also those that were on their way beside others.
        """
        saved_at = self.read_setting(_CURSOR_NUMBER)
        oldest, newest = self._read_range()
        if saved_at is None or oldest <= int(saved_at) + 1:  # the log was read since the last forgotten one
            return
        middle = self._connection.execute(
            "SELECT number, cursor FROM messages WHERE number >= ? AND cursor IS NOT NULL AND scope NOT LIKE ?"
            " ORDER BY number LIMIT 1",  # the cursors of other servers are places in logs of their own
            ((oldest + newest) // 2, f"{KEY_SCOPE}%"),
        ).fetchone()
        if middle is not None:
            self.write_settings({_CURSOR: middle[1], _CURSOR_NUMBER: str(middle[0])})

    # -- reads --

    def read_pending(self) -> list[StoredMessage]:
        rows = self._connection.execute(
            "SELECT number, message_id, order_key, attempts FROM messages WHERE ended_at IS NULL ORDER BY number"
        )
        return [
            StoredMessage(number=number, message_id=message_id, order_key=order_key, attempts=attempts)
            for number, message_id, order_key, attempts in rows
        ]

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
        return self.read_setting(_CURSOR)

    def read_handled_cursor(self) -> str | None:
        """A place in the log before which everything was handled or given up; None if there is none yet."""
        (oldest,) = self._connection.execute("SELECT min(number) FROM messages WHERE ended_at IS NULL").fetchone()
        if oldest is None:
            return self.read_cursor()
        row = self._connection.execute(
            "SELECT cursor FROM messages WHERE number < ? ORDER BY number DESC LIMIT 1", (oldest,)
        ).fetchone()
        return self.read_setting(_FIRST_CURSOR) if row is None else row[0]

    def read_setting(self, name: str) -> str | None:
        row = self._connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def _read_range(self) -> tuple[int, int]:
        """The numbers of the oldest and the newest message; zeros if there is none. One statement for both would scan."""
        (oldest,) = self._connection.execute("SELECT coalesce(min(number), 0) FROM messages").fetchone()
        (newest,) = self._connection.execute("SELECT coalesce(max(number), 0) FROM messages").fetchone()
        return oldest, newest

    def _insert(self, message: NewMessage, now: float) -> int | None:
        return self._connection.execute(
            "INSERT INTO messages (message_id, scope, subscription_id, order_key, body, arrived_at, cursor)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                message.message_id,
                message.scope,
                message.subscription_id,
                message.order_key,
                message.body,
                now,
                message.cursor,
            ),
        ).lastrowid

    def _is_known(self, message_id: str, scope: str) -> bool:
        known = self._connection.execute(
            "SELECT 1 FROM messages WHERE message_id = :id AND (scope IN (:scope, :fetched) OR :scope = :fetched) LIMIT 1",
            {"id": message_id, "scope": scope, "fetched": FETCHED},
        ).fetchone()
        return known is not None

    def _run_in_savepoint(self, work: Callable[[], Any]) -> Any:
        counted = self._pending, self._pending_bytes
        self._connection.execute("SAVEPOINT one")
        try:
            outcome = work()
        except Exception as error:
            if not self._connection.in_transaction:  # on a full disk, SQLite has rolled all works back
                raise
            self._connection.execute("ROLLBACK TO one")
            self._pending, self._pending_bytes = counted
            outcome = error
        self._connection.execute("RELEASE one")
        return outcome

    def _count_pending(self) -> None:
        self._pending, self._pending_bytes = self._connection.execute(
            "SELECT count(*), coalesce(sum(length(body)), 0) FROM messages WHERE ended_at IS NULL"
        ).fetchone()
