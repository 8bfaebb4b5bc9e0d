"""Runs of agents that wait for calls: for frameworks that return a run's state and leave storing it to the user.

    save(state, calls) ──▶ waiting ──save(state, other calls)──▶ waiting
                                  └──save(state=None)─────────▶ finished

A run is found by the tool calls it waits for, and is saved before they start, so that no callback comes too early. Some models
name the calls of every run alike, so several runs may have a call of one name, which differ in the call's id. A process leases
a run before it continues it: two processes never do so at the same time, and the lease of a process that died lapses. A
finished run stays for a while, so that a repeated callback is recognised.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from ringback.private_sqlite import FileFormat, FileUnusable, describe_error, open_private_file

BUSY_SECONDS: Final = 30.0
"""How long a transaction waits for those of other processes, which take milliseconds."""
FINISHED_SECONDS: Final = 30 * 86400
"""Finished runs are kept as long as Ringback keeps the tombstones of calls; no callback comes later."""

APPLICATION_ID: Final = 0x52424B52
"""`RBKR` in ASCII: marks the file as one of parked runs, for SQLite's `application_id`."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY, client_session_id TEXT NOT NULL, state TEXT, finished_at REAL,
    lease_token TEXT NOT NULL, lease_until REAL NOT NULL);
CREATE TABLE IF NOT EXISTS requests (
    client_session_id TEXT NOT NULL, tool_call_id TEXT NOT NULL, run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    upstream TEXT NOT NULL, tool TEXT NOT NULL, arguments TEXT NOT NULL, open INTEGER NOT NULL, call_id TEXT,
    PRIMARY KEY (client_session_id, tool_call_id, run_id, upstream, tool, arguments));
CREATE INDEX IF NOT EXISTS requests_of_runs ON requests (run_id);
CREATE INDEX IF NOT EXISTS finished_runs ON runs (finished_at) WHERE finished_at IS NOT NULL;
"""
_FROM_VERSION_1: Final = "; ".join(
    (
        "ALTER TABLE requests RENAME TO earlier_requests",
        "DROP INDEX requests_of_runs",
        _SCHEMA.strip("\n;"),
        "INSERT INTO requests SELECT * FROM earlier_requests",
        "DROP TABLE earlier_requests",
    )
)
"""In version 1, a tool call of a name was of one run only."""
_FORMAT: Final = FileFormat(
    name="a file of parked runs",
    application_id=APPLICATION_ID,
    version=2,
    schema=_SCHEMA,
    upgrades={1: _FROM_VERSION_1},
)
NOW: Final = "((julianday('now') - 2440587.5) * 86400.0)"
"""Unix time by the database's clock, which all processes on the file share."""

RequestKey = tuple[str, str, str, str]
"""What distinguishes the requests of a run: agents that are tools may name their calls alike."""

T = TypeVar("T")


class ParkedRunsUnavailable(Exception):
    """The file of parked runs cannot be used. The text says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """A tool call of a model, as it is started on Ringback."""

    tool_call_id: str
    upstream: str
    tool: str
    arguments: str = field(repr=False)
    """As the model wrote them: a JSON object, if it is a good one."""
    call_id: str | None = None
    """The call's id, once the store knows that it has started."""

    @property
    def key(self) -> RequestKey:
        return self.tool_call_id, self.upstream, self.tool, self.arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedRun:
    """A run that waits for calls, or that has finished."""

    id: str
    client_session_id: str
    requests: Sequence[ToolRequest] = ()
    """The calls that it waits for."""
    state: str | None = field(default=None, repr=False)
    """The framework's own form of the run. None once the run has finished."""

    @property
    def is_final(self) -> bool:
        return self.state is None


class ParkedRuns(Protocol):
    """A store of parked runs. What it has accepted survives the process."""

    async def save(self, run: ParkedRun, token: str, *, lease_seconds: float) -> bool:
        """Store a new run under the token's lease, or replace one that the token has leased; False if it has not.

        An equal request that an earlier run waits for belongs to this run from now on.
        """
        ...

    async def find(self, client_session_id: str, tool_call_id: str, call_id: str) -> Sequence[ParkedRun]:
        """The run that waits, or waited, for this call; if none is known to, all that may, newest first.

        A run may wait for the call if it has a request of this name whose `call_id` it does not know yet.
        """
        ...

    async def read(self, run_id: str) -> ParkedRun | None:
        """The run as it is now. None if another run waits for its calls instead."""
        ...

    async def find_waiting(self) -> Sequence[ParkedRun]:
        """All runs that have not finished."""
        ...

    async def record_calls(self, run_id: str, started: Sequence[ToolRequest]) -> None:
        """Store the `call_id` of these requests of the run. One that the run has no longer is ignored."""
        ...

    async def lease(self, run_id: str, token: str, *, seconds: float) -> bool:
        """Lease the run; False if another token's lease is valid."""
        ...

    async def renew(self, run_id: str, token: str, *, seconds: float) -> bool:
        """Renew the token's lease, also if it has lapsed; False if another token has leased the run since."""
        ...

    async def release(self, run_id: str, token: str) -> None:
        """End the token's lease. Without effect if the token does not have it."""
        ...


class SQLiteParkedRuns:
    """Parked runs in a file, for all processes of one machine. The file is readable by its owner only.

    Every method raises `ParkedRunsUnavailable` if the file is another program's, or of a later version, or cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    async def save(self, run: ParkedRun, token: str, *, lease_seconds: float) -> bool:
        return await self._transact(lambda database: _save(database, run, token, lease_seconds))

    async def find(self, client_session_id: str, tool_call_id: str, call_id: str) -> Sequence[ParkedRun]:
        return await self._transact(lambda database: _find(database, client_session_id, tool_call_id, call_id))

    async def read(self, run_id: str) -> ParkedRun | None:
        return await self._transact(lambda database: _read(database, run_id))

    async def find_waiting(self) -> Sequence[ParkedRun]:
        return await self._transact(_find_waiting)

    async def lease(self, run_id: str, token: str, *, seconds: float) -> bool:
        return await self._transact(lambda database: _lease(database, run_id, token, seconds))

    async def renew(self, run_id: str, token: str, *, seconds: float) -> bool:
        return await self._transact(lambda database: _renew(database, run_id, token, seconds))

    async def release(self, run_id: str, token: str) -> None:
        await self.renew(run_id, token, seconds=0)

    async def record_calls(self, run_id: str, started: Sequence[ToolRequest]) -> None:
        await self._transact(lambda database: _record_calls(database, run_id, started))

    async def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.to_thread(self._transact_in_thread, work)

    def _transact_in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with closing(_open_file(self._path)) as database, _transaction(database):
                return work(database)
        except sqlite3.Error as error:
            reason = describe_error(error, self._path, _FORMAT)
            raise ParkedRunsUnavailable(
                f"{reason} Check that its folder may be written and has room, then try again."
            ) from error


def _open_file(path: Path) -> sqlite3.Connection:
    """A connection for each transaction: the next one may come days later, from another process."""
    try:
        database = open_private_file(path, _FORMAT, busy_seconds=BUSY_SECONDS)
    except FileUnusable as error:
        raise ParkedRunsUnavailable(f"{error} Choose another file for parked runs.") from error
    database.execute("PRAGMA foreign_keys = ON")
    return database


@contextmanager
def _transaction(database: sqlite3.Connection) -> Generator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if database.in_transaction:  # on a full disk, SQLite has rolled it back
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _save(database: sqlite3.Connection, run: ParkedRun, token: str, lease_seconds: float) -> bool:
    saved = database.execute(
        f"""INSERT INTO runs (id, client_session_id, state, finished_at, lease_token, lease_until)
        VALUES (:id, :client_session_id, :state, iif(:state IS NULL, {NOW}, NULL), :token, {NOW} + :lease_seconds)
        ON CONFLICT (id) DO UPDATE SET state = excluded.state, finished_at = excluded.finished_at,
        lease_until = excluded.lease_until WHERE runs.lease_token = :token""",  # noqa: S608 - NOW is a constant
        {
            "id": run.id,
            "client_session_id": run.client_session_id,
            "state": run.state,
            "token": token,
            "lease_seconds": lease_seconds,
        },
    )
    if saved.rowcount != 1:
        return False
    database.execute("UPDATE requests SET open = FALSE WHERE run_id = ?", (run.id,))
    for request in run.requests:
        _save_request(database, run, request)
    database.execute(f"DELETE FROM runs WHERE finished_at < {NOW} - ?", (FINISHED_SECONDS,))  # noqa: S608 - a constant
    return True


def _save_request(database: sqlite3.Connection, run: ParkedRun, request: ToolRequest) -> None:
    database.execute(
        "INSERT OR REPLACE INTO requests VALUES (?, ?, ?, ?, ?, ?, TRUE, ?)",
        (
            run.client_session_id,
            request.tool_call_id,
            run.id,
            request.upstream,
            request.tool,
            request.arguments,
            request.call_id,
        ),
    )
    _take_from_earlier_runs(database, run, request)


def _take_from_earlier_runs(database: sqlite3.Connection, run: ParkedRun, request: ToolRequest) -> None:
    """Remove an equal request of other runs: it is the same call. A run that waited for it alone is removed, too."""
    equal = (
        "client_session_id = ? AND tool_call_id = ? AND upstream = ? AND tool = ? AND arguments = ? AND run_id != ?",
        (run.client_session_id, request.tool_call_id, request.upstream, request.tool, request.arguments, run.id),
    )
    earlier = database.execute(f"SELECT run_id FROM requests WHERE {equal[0]}", equal[1]).fetchall()  # noqa: S608 - constants
    database.execute(f"DELETE FROM requests WHERE {equal[0]}", equal[1])  # noqa: S608 - constants
    database.executemany(
        "DELETE FROM runs WHERE id = ? AND NOT EXISTS (SELECT 1 FROM requests WHERE run_id = runs.id)", earlier
    )


def _find(database: sqlite3.Connection, client_session_id: str, tool_call_id: str, call_id: str) -> Sequence[ParkedRun]:
    rows = database.execute(
        """SELECT runs.id, runs.client_session_id, state, call_id FROM runs JOIN requests ON run_id = runs.id
        WHERE requests.client_session_id = ? AND tool_call_id = ? AND (call_id = ? OR (call_id IS NULL AND open))
        ORDER BY runs.rowid DESC""",
        (client_session_id, tool_call_id, call_id),
    ).fetchall()
    known = [row for row in rows if row[3] == call_id]
    return [_build_run(database, row) for row in {row[0]: row[:3] for row in known or rows}.values()]


def _read(database: sqlite3.Connection, run_id: str) -> ParkedRun | None:
    row = database.execute("SELECT id, client_session_id, state FROM runs WHERE id = ?", (run_id,)).fetchone()
    return None if row is None else _build_run(database, row)


def _find_waiting(database: sqlite3.Connection) -> list[ParkedRun]:
    rows = database.execute("SELECT id, client_session_id, state FROM runs WHERE state IS NOT NULL ORDER BY id")
    return [_build_run(database, row) for row in rows.fetchall()]


def _build_run(database: sqlite3.Connection, row: Sequence[Any]) -> ParkedRun:
    run_id, client_session_id, state = row
    rows = database.execute(
        """SELECT tool_call_id, upstream, tool, arguments, call_id FROM requests
        WHERE run_id = ? AND open ORDER BY tool_call_id""",
        (run_id,),
    )
    requests = [
        ToolRequest(tool_call_id=tool_call_id, upstream=upstream, tool=tool, arguments=arguments, call_id=call_id)
        for tool_call_id, upstream, tool, arguments, call_id in rows
    ]
    return ParkedRun(id=run_id, client_session_id=client_session_id, requests=requests, state=state)


def _lease(database: sqlite3.Connection, run_id: str, token: str, seconds: float) -> bool:
    leased = database.execute(
        f"""UPDATE runs SET lease_token = :token, lease_until = {NOW} + :seconds
        WHERE id = :id AND (lease_token = :token OR lease_until <= {NOW})""",  # noqa: S608 - NOW is a constant
        {"id": run_id, "token": token, "seconds": seconds},
    )
    return leased.rowcount == 1


def _renew(database: sqlite3.Connection, run_id: str, token: str, seconds: float) -> bool:
    renewed = database.execute(
        f"UPDATE runs SET lease_until = {NOW} + ? WHERE id = ? AND lease_token = ?",  # noqa: S608 - NOW is a constant
        (seconds, run_id, token),
    )
    return renewed.rowcount == 1


def _record_calls(database: sqlite3.Connection, run_id: str, started: Sequence[ToolRequest]) -> None:
    # Some models name the tool calls of every turn alike, so the name alone may mean a later one.
    database.executemany(
        """UPDATE requests SET call_id = ?
        WHERE run_id = ? AND tool_call_id = ? AND upstream = ? AND tool = ? AND arguments = ?""",
        [(each.call_id, run_id, each.tool_call_id, each.upstream, each.tool, each.arguments) for each in started],
    )
