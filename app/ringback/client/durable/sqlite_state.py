"""States in a SQLite file, which the processes of one machine share."""

import asyncio
import os
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from ringback.client.durable.errors import StateUnavailable
from ringback.client.durable.state import StoredState
from ringback.private_sqlite import FileFormat, FileUnusable, describe_error, open_private_file

T = TypeVar("T")

BUSY_SECONDS: Final = 30.0
"""How long a write waits for another process; each holds the lock for one statement."""
EXPIRED_DELETED_MAX: Final = 100
"""Expired states that one new state deletes: more than one, so that they become fewer."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS request_states (
    key TEXT NOT NULL PRIMARY KEY, version TEXT NOT NULL, text TEXT NOT NULL, expires_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS request_states_by_expiry ON request_states (expires_at);
"""
_FORMAT: Final = FileFormat(name="an SQLite file", application_id=None, schema=_SCHEMA)
_COLUMNS: Final = "key, version, text, expires_at"


class SQLiteRequestState:
    """Keeps states in a SQLite file, which is created with mode 0600. A write is on disk when it returns.

    The file opens with the first use. `aclose` closes it; so do the end of an `async with` and of the object. A fork closes it,
    too: parent and child open it again.
    """

    is_shared = True

    def __init__(self, path: str | os.PathLike[str], *, now: Callable[[], float] = time.time) -> None:  # noqa: TID251 - the default clock
        """`now` returns seconds since 1970."""
        if os.fspath(path) in {"", ":memory:"}:
            raise ValueError("SQLiteRequestState needs a file. For a state in memory, use MemoryRequestState().")
        self._path = Path(path)
        self._now = now
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._finalizer: weakref.finalize[..., SQLiteRequestState] | None = None
        """Closes the file of a state that is dropped without `aclose`."""
        with _forking:  # a fork goes through the states, and would fail if their number changed meanwhile
            _states.add(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the file. The next use opens it again."""
        await asyncio.to_thread(self._close)

    async def read(self, key: str) -> StoredState | None:
        def run(connection: sqlite3.Connection) -> StoredState | None:
            states = self._select(connection, "key = ?", key, limit=1)
            return states[0] if states else None

        return await self._run(run)

    async def write(self, state: StoredState, *, replaces: str | None) -> bool:
        return await self._run(lambda connection: self._write(connection, state, replaces))

    async def delete(self, key: str) -> None:
        await self._run(lambda connection: connection.execute("DELETE FROM request_states WHERE key = ?", (key,)))

    async def list_states(self, *, after: str = "", limit: int = 100) -> Sequence[StoredState]:
        return await self._run(lambda connection: self._select(connection, "key > ?", after, limit=limit))

    def _select(self, connection: sqlite3.Connection, where: str, value: str, *, limit: int) -> list[StoredState]:
        rows: list[tuple[str, str, str, float]] = connection.execute(
            f"SELECT {_COLUMNS} FROM request_states WHERE {where} AND expires_at > ? ORDER BY key LIMIT ?",  # noqa: S608 - constants
            (value, self._now(), limit),
        ).fetchall()
        return [StoredState(key=row[0], version=row[1], text=row[2], expires_at=row[3]) for row in rows]

    def _write(self, connection: sqlite3.Connection, state: StoredState, replaces: str | None) -> bool:
        now = self._now()
        values: dict[str, Any] = {
            "key": state.key,
            "version": state.version,
            "text": state.text,
            "expires_at": state.expires_at,
            "replaces": replaces,
            "now": now,
        }
        if replaces is not None:
            return self._changes_a_row(
                connection,
                "UPDATE request_states SET version = :version, text = :text, expires_at = :expires_at"
                " WHERE key = :key AND version = :replaces AND expires_at > :now",
                values,
            )
        connection.execute(
            "DELETE FROM request_states WHERE key IN"
            " (SELECT key FROM request_states WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)",
            (now, EXPIRED_DELETED_MAX),
        )
        return self._changes_a_row(
            connection,
            f"INSERT INTO request_states ({_COLUMNS}) VALUES (:key, :version, :text, :expires_at)"  # noqa: S608 - constants
            " ON CONFLICT (key) DO UPDATE SET version = :version, text = :text, expires_at = :expires_at"
            " WHERE request_states.expires_at <= :now",
            values,
        )

    @staticmethod
    def _changes_a_row(connection: sqlite3.Connection, statement: str, values: dict[str, Any]) -> bool:
        return connection.execute(statement, values).rowcount == 1

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.to_thread(self._run_in_thread, work)

    def _run_in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            try:
                if self._connection is None:
                    # Each statement is a transaction of its own; other processes write between two of them.
                    connection = open_private_file(
                        self._path, _FORMAT, busy_seconds=BUSY_SECONDS, check_same_thread=False
                    )
                    self._connection = connection
                    # Python 3.13 warns of a connection that is collected open.
                    self._finalizer = weakref.finalize(self, connection.close)
                return work(self._connection)
            except sqlite3.Error as error:
                raise _state_unavailable(describe_error(error, self._path, _FORMAT)) from error
            except FileUnusable as error:
                raise _state_unavailable(error) from error

    def _close(self) -> None:
        with self._lock:
            self._close_connection()

    def _close_connection(self) -> None:
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def prepare_fork(self) -> None:
        """Close the file, and keep other threads from opening it until `end_fork`."""
        self._lock.acquire()
        with suppress(sqlite3.Error):
            self._close_connection()

    def end_fork(self) -> None:
        """In the parent and in the child."""
        self._lock.release()


_states: Final["weakref.WeakSet[SQLiteRequestState]"] = weakref.WeakSet()
_forking: Final = threading.Lock()
_forked: Final[list[SQLiteRequestState]] = []


def _prepare_fork() -> None:
    """A child must not use a connection of its parent (https://sqlite.org/howtocorrupt.html, 2.6).

    It would have no locks, so that the parent, when it closes the file, would remove the log to which the child writes.
    """
    _forking.acquire()
    for state in list(_states):
        state.prepare_fork()
        _forked.append(state)


def _end_fork() -> None:
    while _forked:
        _forked.pop().end_fork()
    _forking.release()


if sys.platform != "win32":
    os.register_at_fork(before=_prepare_fork, after_in_parent=_end_fork, after_in_child=_end_fork)


def _state_unavailable(error: FileUnusable) -> StateUnavailable:
    return StateUnavailable(f"{error} Check that its folder exists, may be written and has room, then try again.")
