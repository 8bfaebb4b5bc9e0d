"""Databases with a crowd of rows that no measured statement is about, copied by SQL from rows that the engine wrote.

The statements run unchanged on both stores. Sealed columns are copied as they are, and cannot be unsealed under another id: the
crowd's webhooks match no event of the benchmark, and its deliveries are not due.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, Protocol

import asyncpg

from scripts.benchmarks.databases import SQLITE_URL_PREFIX
from scripts.benchmarks.engine import open_engine
from scripts.benchmarks.signed_post import PRINCIPAL

FAR_FUTURE: Final = 9_000_000_000_000
"""Milliseconds since 1970: no delivery of the crowd is due."""
FIRST_NUMBER: Final = 1_000_000_000
"""Added to the numbers in ids, so that all have the same length, and sort as they were made."""
NUMBERED: Final = f"CAST({FIRST_NUMBER} + n AS text)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Rows of each kind. One principal owns the calls, events and deliveries."""

    webhooks: int
    calls: int
    deliveries: int
    principals: int = 1
    """Owners of the webhooks, in turn."""


class Database(Protocol):
    async def execute(self, statement: str) -> None: ...

    async def columns(self, table: str) -> Sequence[str]: ...


class SqliteFile:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def execute(self, statement: str) -> None:
        self._connection.execute(statement)

    async def columns(self, table: str) -> Sequence[str]:
        """Without generated columns."""
        return [column[1] for column in self._connection.execute(f"PRAGMA table_info({table})")]


class PostgresServer:
    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection

    async def execute(self, statement: str) -> None:
        await self._connection.execute(statement)

    async def columns(self, table: str) -> Sequence[str]:
        statement = await self._connection.prepare(f"SELECT * FROM {table} LIMIT 0")  # noqa: S608
        return [attribute.name for attribute in statement.get_attributes()]


async def fill(database_url: str, crowd: Crowd) -> str:
    """Make the tables and the crowd. Returns the id of the call that the crowd's are copies of."""
    original = await _write_originals(database_url)
    if database_url.startswith(SQLITE_URL_PREFIX):
        with closing(sqlite3.connect(database_url.removeprefix(SQLITE_URL_PREFIX))) as connection, connection:
            await _copy_rows(SqliteFile(connection), crowd)
        return original
    connection = await asyncpg.connect(database_url)
    try:
        # A transaction of a unit of work counts a hundred calls; the counter's row would have a version for each of a million.
        await connection.execute("ALTER TABLE calls DISABLE TRIGGER USER")
        await _copy_rows(PostgresServer(connection), crowd)
        await connection.execute("ALTER TABLE calls ENABLE TRIGGER USER")
        await connection.execute("VACUUM ANALYZE")  # as autovacuum does soon
    finally:
        await connection.close()
    return original


async def _write_originals(database_url: str) -> str:
    """One webhook, and one finished call with its event and its pending delivery."""
    url = "https://crowd.example/"
    async with open_engine(database_url) as engine:
        await engine.insert_webhooks([url])
        (call,) = await engine.running_calls([url], 1)
        await engine.finish_call(call)
        return call.id


async def _copy_rows(database: Database, crowd: Crowd) -> None:
    owner = f"'crowd-' || CAST(n % {crowd.principals} AS text)" if crowd.principals > 1 else f"'{PRINCIPAL}'"
    session = f"'crowd-' || {NUMBERED}"
    await _copy(
        database,
        "webhooks",
        crowd.webhooks,
        {"id": f"'wh_' || {NUMBERED}", "principal": owner, "client_session_id": session},
    )
    call_id = f"'call_' || {NUMBERED}"
    created = {"created_at": f'one."created_at" - {crowd.calls} + n'}  # one a millisecond, in the order of the ids
    await _copy(database, "calls", crowd.calls, {"id": call_id, "client_session_id": session} | created)
    await _copy(database, "inputs", crowd.calls, {"call_id": call_id})
    await _copy(database, "results", crowd.calls, {"call_id": call_id})
    event = {"id": f"'evt_' || {NUMBERED}", "seq": "n + 1", "call_id": call_id} | created
    await _copy(database, "events", crowd.calls, event)
    await database.execute(f"UPDATE log_heads SET seq = {crowd.calls + 1} WHERE principal = '{PRINCIPAL}'")  # noqa: S608
    delivery_id = f"'dlv_' || {NUMBERED}"
    delivery = {
        "id": delivery_id,
        "webhook_id": f"'wh_' || CAST({FIRST_NUMBER} + n % {crowd.webhooks} + 1 AS text)",
        "event_id": f"'evt_' || {NUMBERED}",
        "call_id": call_id,
        "seq": "n + 1",
        "due_at": str(FAR_FUTURE),
        "give_up_at": str(FAR_FUTURE),
    }
    await _copy(database, "deliveries", crowd.deliveries, delivery)
    await _copy(database, "bodies", crowd.deliveries, {"delivery_id": delivery_id})


async def _copy(database: Database, table: str, count: int, changed: Mapping[str, Any]) -> None:
    """Copy the table's one row so many times, with these expressions of `n` in the place of its values."""
    columns = await database.columns(table)
    values = [changed.get(name, f'one."{name}"') for name in columns]
    names = ", ".join(f'"{name}"' for name in columns)
    await database.execute(
        f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}) "  # noqa: S608
        f"INSERT INTO {table} ({names}) SELECT {', '.join(values)} FROM {table} AS one CROSS JOIN numbers"
    )
