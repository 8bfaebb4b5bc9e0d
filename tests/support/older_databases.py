"""A database that code of before the counts of bytes fills, in SQLite's dialect and in PostgreSQL's.

async with open_older_database(folder, kind) as database:
    await database.migrate(is_older=True)       as that code does
    await database.insert(calls, events)        the rows that it inserts
    await database.migrate()                    as today's code does
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final, Protocol

import asyncpg

from ringback.domain.call import Call
from ringback.domain.event import Event
from ringback.storage.postgres import migrator as postgres_migrator
from ringback.storage.postgres.statements import load_sql
from ringback.storage.queries import replace_parameters
from ringback.storage.rows.columns import RECORDS
from ringback.storage.sqlite.database import connect
from ringback.storage.sqlite.migrator import apply_migrations, load_migrations
from tests.support.clock import START
from tests.support.databases import FILE_NAME, StoreKind
from tests.support.filled_postgres import Connection
from tests.support.postgres_databases import empty_database

FIRST_COUNTING: Final = {StoreKind.SQLITE: 36, StoreKind.POSTGRES: 28}
"""The migrations since which bytes of arguments and events are counted."""
INSERT_CALL: Final = f"INSERT INTO calls {RECORDS.call.insert_lists()}"
INSERT_EVENT: Final = f"INSERT INTO events {RECORDS.event.insert_lists()}"
INSERT_INPUT: Final = "INSERT INTO inputs (call_id, arguments, meta) VALUES (:id, :arguments, :meta)"


class OlderDatabase(Protocol):
    async def migrate(self, *, is_older: bool = False) -> None:
        """Raises if the older code may not run on the database."""
        ...

    async def insert(self, calls: Sequence[Call], events: Sequence[Event]) -> None:
        """As the older code does."""
        ...

    async def fetch(self, statement: str) -> Sequence[tuple[Any, ...]]: ...

    async def delete_calls(self, *calls: Call) -> None:
        """As today's code does: on PostgreSQL a statement deletes what belongs to a call, and on SQLite a trigger."""
        ...


class _SqliteDatabase:
    def __init__(self, path: Path) -> None:
        self._connection = connect(path, lock_wait_seconds=0)
        self.close = self._connection.close

    async def migrate(self, *, is_older: bool = False) -> None:
        migrations = load_migrations()
        if is_older:
            migrations = [each for each in migrations if each.number < FIRST_COUNTING[StoreKind.SQLITE]]
        apply_migrations(self._connection, migrations, now=START)

    async def insert(self, calls: Sequence[Call], events: Sequence[Event]) -> None:
        for call in calls:
            row = RECORDS.whole_call.encode(call)
            self._connection.execute(INSERT_CALL, row)
            self._connection.execute(INSERT_INPUT, row)
        for event in events:
            self._connection.execute(INSERT_EVENT, RECORDS.event.encode(event))

    async def fetch(self, statement: str) -> Sequence[tuple[Any, ...]]:
        return [tuple(row) for row in self._connection.execute(statement)]

    async def delete_calls(self, *calls: Call) -> None:
        self._connection.executemany("DELETE FROM calls WHERE id = ?", [(call.id,) for call in calls])


class _PostgresDatabase:
    def __init__(self, url: str, connection: Connection) -> None:
        self._url = url
        self._connection = connection

    async def migrate(self, *, is_older: bool = False) -> None:
        migrations = postgres_migrator.load_migrations()
        if is_older:
            migrations = [each for each in migrations if each.number < FIRST_COUNTING[StoreKind.POSTGRES]]
        await postgres_migrator.migrate_database(self._url, migrations)

    async def insert(self, calls: Sequence[Call], events: Sequence[Event]) -> None:
        insert_whole = f"WITH stored AS ({INSERT_CALL}) {INSERT_INPUT}"  # as one statement, which that code had
        for call in calls:
            await self._run(insert_whole, RECORDS.whole_call.encode(call))
        for event in events:
            await self._run(INSERT_EVENT, RECORDS.event.encode(event))

    async def fetch(self, statement: str) -> Sequence[tuple[Any, ...]]:
        return [tuple(row) for row in await self._connection.fetch(statement)]

    async def delete_calls(self, *calls: Call) -> None:
        await self._connection.execute(load_sql("tombstones")["delete_calls"].writing, [call.id for call in calls])

    async def _run(self, statement: str, row: Mapping[str, Any]) -> None:
        values = list[Any]()

        def number(name: str) -> str:
            values.append(row[name])
            return f"${len(values)}"

        numbered = replace_parameters(statement, number)
        await self._connection.execute(numbered, *values)


@asynccontextmanager
async def open_older_database(folder: Path, kind: StoreKind) -> AsyncGenerator[OlderDatabase]:
    """A database without tables."""
    if kind is StoreKind.SQLITE:
        with closing(_SqliteDatabase(folder / FILE_NAME)) as database:
            yield database
        return
    async with empty_database() as url:
        connection = await asyncpg.connect(url)
        try:
            yield _PostgresDatabase(url, connection)
        finally:
            await connection.close()
