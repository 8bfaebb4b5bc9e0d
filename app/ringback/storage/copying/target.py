"""The rows of the PostgreSQL database: read by ranges of keys, and replaced."""

from collections.abc import AsyncGenerator, Container, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from ringback.domain.clock import CONTINUED_AHEAD_SECONDS_MAX
from ringback.domain.errors import StoreUnavailable
from ringback.storage.copying.source import CopiedTable, Key, Row
from ringback.storage.postgres.driver import SERVER_SETTINGS, connect_driver
from ringback.storage.postgres.errors import to_store_unavailable
from ringback.storage.postgres.migrator import migrate_database
from ringback.storage.postgres.statements import load_sql

COPY_SETTINGS: Final = {
    **SERVER_SETTINGS,
    "synchronous_commit": "off",  # the last commit is synchronous, and makes all earlier ones durable
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "application_name": "ringback copy",
}
KEYS_READ_MAX: Final = 4_000
"""Keys read at once: twice the rows of the largest batch."""
_LOCK: Final = 2026112214
"""Any number that no other program uses: one copy at a time."""

_FINISHED: Final = "Finished copy of "
"""The comment of the table `calls` begins so, and the path of the source follows."""

_CONTINUE_CLOCK: Final = """
WITH clock AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now)
UPDATE shared_clock SET ahead = instant - now, saved_at = now FROM scheduling_time, clock
WHERE instant > now AND instant <= now + $1::bigint
"""
"""The first node continues from the last time of the SQLite service, as that itself would: leases and due dates refer to it."""


@asynccontextmanager
async def open_target(url: str) -> AsyncGenerator["CopyTarget"]:
    """The database with this version's tables. Errors of PostgreSQL are raised as `StoreUnavailable`."""
    try:
        await migrate_database(url, for_copy=True)
        connection = await connect_driver(url, server_settings=COPY_SETTINGS)
        try:
            yield CopyTarget(connection)
        finally:
            await connection.close()
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise to_store_unavailable(error) from error


class CopyTarget:
    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection

    async def begin(self, tables: Iterable[str], *, source: str) -> bool:
        """Mark the database as an unfinished copy of this source; return whether it was one already.

        Raises `StoreUnavailable` if it has rows of its own, or is a copy of another source, or is being copied to.
        """
        if not await self._connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):
            raise StoreUnavailable("Another `ringback copy` writes to this database.", needs_operator=True)
        if await self._connection.fetchval("SELECT to_regclass('unfinished_copy') IS NOT NULL"):
            begun = await self._connection.fetchval("SELECT source FROM unfinished_copy")
            if begun != source:
                raise StoreUnavailable(
                    f"The PostgreSQL database is an unfinished copy of '{begun}'. Finish that one, or use an empty database.",
                    needs_operator=True,
                )
            return True
        for table in tables:
            if await self._connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM {table})"):  # noqa: S608 - a name of ours
                if await self._connection.fetchval("SELECT obj_description('calls'::regclass)") == _FINISHED + source:
                    raise StoreUnavailable(
                        f"The copy of '{source}' is already finished, and nodes may use the PostgreSQL database. "
                        "Another copy needs an empty database.",
                        needs_operator=True,
                    )
                raise StoreUnavailable(
                    f"The PostgreSQL database is not empty: the table '{table}' has rows. Use an empty database.",
                    needs_operator=True,
                )
        async with self._connection.transaction():
            await self._connection.execute("CREATE TABLE unfinished_copy (source text NOT NULL)")
            await self._connection.execute("INSERT INTO unfinished_copy VALUES ($1)", source)
        return False

    async def finish(self) -> None:
        """Let stores open the database. Everything that was copied is durable afterwards."""
        async with self._connection.transaction():
            await self._connection.execute("SET LOCAL synchronous_commit = on")
            await self._connection.execute(
                "SELECT setval('turn_tickets', 1 + (SELECT coalesce(max(ticket), 0) FROM turns))"
            )
            await self._connection.execute(
                "SELECT setval(pg_get_serial_sequence('audit_entries', 'seq'),"
                " 1 + (SELECT coalesce(max(seq), 0) FROM audit_entries))"
            )
            await self._connection.execute(_CONTINUE_CLOCK, round(CONTINUED_AHEAD_SECONDS_MAX * 1000))
            comment = await self._connection.fetchval(
                "SELECT format('COMMENT ON TABLE calls IS %L', $1 || source) FROM unfinished_copy", _FINISHED
            )
            await self._connection.execute(comment)
            await self._connection.execute("DROP TABLE unfinished_copy")
        await self._connection.execute("ANALYZE")

    async def describe_table(self, name: str, key: tuple[str, ...]) -> CopiedTable:
        rows = await self._connection.fetch(
            "SELECT column_name::text AS name, data_type::text AS kind FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND table_name = $1 ORDER BY ordinal_position",
            name,
        )
        return CopiedTable(
            name=name,
            key=key,
            columns=tuple(row["name"] for row in rows),
            booleans=frozenset(row["name"] for row in rows if row["kind"] == "boolean"),
        )

    async def count(self, table: str) -> int:
        return int(await self._connection.fetchval(f"SELECT count(*) FROM {table}"))  # noqa: S608 - a name of ours

    async def count_calls_by_status(self) -> Mapping[str, int]:
        """As the triggers have counted them."""
        rows = await self._connection.fetch(load_sql("usage")["calls_by_status"].reading)
        return {row["status"]: row["count"] for row in rows if row["count"]}

    async def read_range(self, table: CopiedTable, after: Key | None, until: Key) -> Sequence[Row]:
        """The rows after one key up to another one."""
        return await self._select(table, table.columns, after, until)

    async def _read_keys(self, table: CopiedTable, after: Key | None, until: Key) -> Sequence[Key]:
        """The first keys of the range."""
        return await self._select(table, table.key, after, until, suffix=f"LIMIT {KEYS_READ_MAX}")

    async def _select(
        self, table: CopiedTable, columns: Iterable[str], after: Key | None, until: Key, *, suffix: str = ""
    ) -> Sequence[tuple[Any, ...]]:
        width = len(table.key)
        key, bounds = _names(table.key), [f"({_names(table.key)}) <= ({_parameters(1, width)})"]
        if after is not None:
            bounds.append(f"({key}) > ({_parameters(width + 1, width)})")
        found = await self._connection.fetch(
            f"SELECT {_names(columns)} FROM {table.name} WHERE {' AND '.join(bounds)} ORDER BY {key} {suffix}",  # noqa: S608 - ours
            *until,
            *(after or ()),
        )
        return [tuple(row) for row in found]

    async def delete_others(self, table: CopiedTable, after: Key | None, until: Key, *, kept: Container[Key]) -> int:
        """Delete the rows of this range with other keys. Return their number.

        There may be any number of them, with gigabytes: the source has removed all that expired since the last copy. So only
        their keys are read.
        """
        deleted = 0
        while True:
            keys = await self._read_keys(table, after, until)
            others = [key for key in keys if key not in kept]
            if others:
                await self.replace(table, others, [])
                deleted += len(others)
            if len(keys) < KEYS_READ_MAX:
                return deleted
            after = keys[-1]

    async def delete_after(self, table: CopiedTable, after: Key | None) -> int:
        """Delete the rows behind the source's last one. Return their number."""
        where = f"WHERE ({_names(table.key)}) > ({_parameters(1, len(table.key))})" if after is not None else ""
        status = await self._connection.execute(f"DELETE FROM {table.name} {where}", *(after or ()))  # noqa: S608 - ours
        return int(status.rpartition(" ")[2])

    async def replace(self, table: CopiedTable, gone: Sequence[Key], rows: Sequence[Row]) -> None:
        """Delete the rows of these keys and insert these rows, in one transaction."""
        key = _names(table.key)
        async with self._connection.transaction():
            await self._connection.executemany(
                f"DELETE FROM {table.name} WHERE ({key}) = ({_parameters(1, len(table.key))})",  # noqa: S608 - names of ours
                gone,
            )
            if rows:
                await self._connection.copy_records_to_table(table.name, records=rows, columns=table.columns)


def _names(columns: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _parameters(first: int, count: int) -> str:
    return ", ".join(f"${number}" for number in range(first, first + count))
