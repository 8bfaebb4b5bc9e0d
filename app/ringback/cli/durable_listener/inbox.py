"""The listener's SQLite file: the callbacks that it has read, the cursor after them, and the secret that signs forwards.

Every method runs in one thread of the inbox, because a commit waits for the disk.
"""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from ringback.cli.durable_listener.state_file import StateFileUnusable
from ringback.private_sqlite import FileFormat, FileUnusable, open_private_file

T = TypeVar("T")

APPLICATION_ID: Final = 0x52424C4E
"""`RBLN`, in the header of the file: an SQLite file of another program is not changed."""
LOCK_WAIT_SECONDS: Final = 5.0
"""SQLite's default. The lock beside the file keeps other listeners away already."""
REMEMBERED_CALLBACKS_MAX: Final = 10_000
"""Handled callbacks whose ids stay, so that an event that the service sends again is recognised: about 1 MB."""
PRUNED_ROWS_MAX: Final = 1_000
"""Rows that one transaction removes, so that no transaction is long."""

_SCHEMA: Final = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE inbox (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL UNIQUE,
    order_key TEXT NOT NULL,
    cursor TEXT,
    body BLOB,
    attempts INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'handled', 'given_up')),
    last_error TEXT
);
CREATE INDEX inbox_waiting ON inbox (position) WHERE state = 'waiting';
"""
_FORMAT: Final = FileFormat(name="the state of a listener", application_id=APPLICATION_ID, schema=_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCallback:
    """A callback that is to be stored."""

    event_id: str
    order_key: str
    """Callbacks with the same key are handled one at a time."""
    cursor: str | None
    """The place after the event in the service's log."""
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCallback:
    """A stored callback that no handler has taken. The body stays in the file until it is handled."""

    position: int
    event_id: str
    order_key: str
    attempts: int


class Inbox:
    def __init__(self, connection: sqlite3.Connection, executor: ThreadPoolExecutor) -> None:
        self._connection = connection
        self._executor = executor

    async def read_setting(self, name: str) -> str | None:
        return await self._run(lambda: self._read_setting(name))

    async def write_settings(self, settings: Mapping[str, str]) -> None:
        """Write settings in one transaction."""
        await self._run(lambda: self._write_settings(settings))

    async def store(self, callbacks: Sequence[NewCallback], *, cursor: str | None) -> Sequence[WaitingCallback]:
        """Store callbacks and the cursor after them in one transaction. Returns those that were not stored before."""
        return await self._run(lambda: self._store(callbacks, cursor))

    async def list_waiting(self) -> Sequence[WaitingCallback]:
        """The waiting callbacks, oldest first."""
        return await self._run(self._list_waiting)

    async def read_body(self, position: int) -> bytes:
        return await self._run(lambda: self._fetch_one("SELECT body FROM inbox WHERE position = ?", position)[0])

    async def read_handled_cursor(self) -> str | None:
        """A cursor before which everything is handled or given up; None if there is none yet."""
        return await self._run(self._read_handled_cursor)

    async def mark_handled(self, position: int) -> None:
        """Record that the callback was handled. Its id stays; its body, with the resume token, is removed."""
        await self._execute("UPDATE inbox SET state = 'handled', body = NULL WHERE position = ?", position)

    async def record_failure(self, position: int, reason: str) -> None:
        await self._execute(
            "UPDATE inbox SET attempts = attempts + 1, last_error = ? WHERE position = ?", reason, position
        )

    async def mark_given_up(self, position: int) -> None:
        """Record that the callback is no longer tried. Its body stays, for `retry_given_up`."""
        await self._execute("UPDATE inbox SET state = 'given_up' WHERE position = ?", position)

    async def retry_given_up(self) -> int:
        """Let the callbacks that were given up wait again. Returns their number."""
        return await self._execute("UPDATE inbox SET state = 'waiting', attempts = 0 WHERE state = 'given_up'")

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def _execute(self, statement: str, *parameters: Any) -> int:
        def execute() -> int:
            with self._connection:
                return self._connection.execute(statement, parameters).rowcount

        return await self._run(execute)

    # -- in the inbox's thread --

    def _fetch_one(self, statement: str, *parameters: Any) -> Any:
        return self._connection.execute(statement, parameters).fetchone()

    def _read_setting(self, name: str) -> str | None:
        row = self._fetch_one("SELECT value FROM settings WHERE name = ?", name)
        return None if row is None else str(row[0])

    def _write_settings(self, settings: Mapping[str, str]) -> None:
        with self._connection:
            self._connection.executemany("REPLACE INTO settings (name, value) VALUES (?, ?)", settings.items())

    def _store(self, callbacks: Sequence[NewCallback], cursor: str | None) -> list[WaitingCallback]:
        with self._connection:
            stored = [entry for callback in callbacks if (entry := self._insert(callback)) is not None]
            if cursor is not None:
                self._connection.execute("REPLACE INTO settings (name, value) VALUES ('cursor', ?)", (cursor,))
            self._prune()
        return stored

    def _insert(self, callback: NewCallback) -> WaitingCallback | None:
        row = self._fetch_one(
            "INSERT INTO inbox (event_id, order_key, cursor, body) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (event_id) DO NOTHING RETURNING position",
            *(callback.event_id, callback.order_key, callback.cursor, callback.body),
        )
        if row is None:
            return None
        return WaitingCallback(position=row[0], event_id=callback.event_id, order_key=callback.order_key, attempts=0)

    def _prune(self) -> None:
        self._connection.execute(
            "DELETE FROM inbox WHERE position IN (SELECT position FROM inbox WHERE state <> 'waiting'"
            " AND position <= (SELECT max(position) FROM inbox) - ? ORDER BY position LIMIT ?)",
            (REMEMBERED_CALLBACKS_MAX, PRUNED_ROWS_MAX),
        )

    def _list_waiting(self) -> list[WaitingCallback]:
        rows = self._connection.execute(
            "SELECT position, event_id, order_key, attempts FROM inbox WHERE state = 'waiting' ORDER BY position"
        )
        return [
            WaitingCallback(position=position, event_id=event_id, order_key=order_key, attempts=attempts)
            for position, event_id, order_key, attempts in rows
        ]

    def _read_handled_cursor(self) -> str | None:
        oldest = self._fetch_one("SELECT min(position) FROM inbox WHERE state = 'waiting'")[0]
        if oldest is None:
            return self._read_setting("cursor")
        row = self._fetch_one("SELECT cursor FROM inbox WHERE position < ? ORDER BY position DESC LIMIT 1", oldest)
        return self._read_setting("first_cursor") if row is None else row[0]


@asynccontextmanager
async def open_inbox(path: Path) -> AsyncGenerator[Inbox]:
    """The inbox in this file, which is created if it is missing. Raises `StateFileUnusable`."""
    with ThreadPoolExecutor(1, thread_name_prefix="inbox") as executor:
        connection = await asyncio.get_running_loop().run_in_executor(executor, _connect, path)
        with closing(connection):
            yield Inbox(connection, executor)


def _connect(path: Path) -> sqlite3.Connection:
    try:
        connection = open_private_file(path, _FORMAT, busy_seconds=LOCK_WAIT_SECONDS, check_same_thread=False)
    except FileUnusable as error:
        raise StateFileUnusable(f"{error} Choose another --state.") from None
    connection.isolation_level = "DEFERRED"  # `with connection` is a transaction
    return connection
