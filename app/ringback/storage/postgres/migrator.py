"""Applies the migrations of PostgreSQL's dialect, each once, in order, in a transaction of its own (`storage.migrations`).

Nodes that start at the same time take turns by an advisory lock, which each holds for one migration. A node that finds nothing
missing takes no lock.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from ringback.domain.errors import StoreUnavailable
from ringback.storage.migrations import (
    AppliedMigration,
    Migration,
    SchemaState,
    compare_migrations,
    read_migrations,
    require_known_to_running,
)
from ringback.storage.postgres.driver import Connection, connect
from ringback.storage.postgres.statements import load_sql
from ringback.storage.rows.statements import Row

VERSION_MIN: Final = 140_000
"""PostgreSQL 14, the oldest version that its authors maintain in 2026."""

_SQL: Final = load_sql("migrator")


def load_migrations() -> list[Migration]:
    """The migrations of this version: `migrations/0001_….sql` and so on."""
    return read_migrations("ringback.storage.postgres")


async def migrate_database(
    url: str,
    migrations: Sequence[Migration] | None = None,
    *,
    for_copy: bool = False,
    beside_nodes: bool = False,
) -> SchemaState:
    """Apply the missing migrations; return what was missing.

    Raises `StoreUnavailable` if this code may not run on the database, and, unless it is `for_copy`, if the database is an
    unfinished copy. A standby is refused. So is, `beside_nodes`, a migration that would stop nodes of an earlier version.
    Errors of PostgreSQL are raised as they are.
    """
    async with _connected(url) as connection:
        await _require_primary(connection)
        if not for_copy:
            await _require_no_unfinished_copy(connection)
        state = await _read_state(connection, migrations or load_migrations())
        if beside_nodes:
            require_known_to_running(state)
        for migration in state.missing:
            await _apply_if_missing(connection, migration, migrations or load_migrations())
        return state


async def read_schema_state(url: str, *, to_migrate: bool = False) -> SchemaState:
    """What the database lacks. Changes nothing; raises as `migrate_database`, but reads a standby unless it is `to_migrate`."""
    async with _connected(url) as connection:
        if to_migrate:
            await _require_primary(connection)
        await _require_no_unfinished_copy(connection)
        return await _read_state(connection, load_migrations())


async def find_other_installations(url: str) -> Sequence[str]:
    """The schemas of the same database, besides this installation's, that have tables of Ringback."""
    async with _connected(url) as connection:
        return [row["name"] for row in await connection.fetch(_SQL["other_installations"].writing)]


@asynccontextmanager
async def _connected(url: str) -> AsyncGenerator[Connection]:
    connection = await connect(url, answer_timeout_seconds=None, transaction_seconds=0)
    try:
        (row,) = await connection.fetch(_SQL["version"].writing)
        if row["number"] < VERSION_MIN:
            raise StoreUnavailable(
                f"PostgreSQL {row['number'] // 10_000} is too old: {VERSION_MIN // 10_000} is needed.",
                needs_operator=True,
            )
        yield connection
    finally:
        await connection.close()


async def _require_primary(connection: Connection) -> None:
    """A standby may become the primary while a failover is under way, so a supervisor tries again."""
    (found,) = await connection.fetch(_SQL["is_standby"].writing)
    if found["is_standby"]:
        raise StoreUnavailable(
            "This PostgreSQL server is a standby, which only reads. Name the primary in the database URL, or all servers and "
            "target_session_attrs=read-write: postgresql://user:password@one,two/database?target_session_attrs=read-write"
        )


async def _require_no_unfinished_copy(connection: Connection) -> None:
    (found,) = await connection.fetch(_SQL["has_unfinished_copy"].writing)
    if found["has_unfinished_copy"]:
        raise StoreUnavailable(
            "This database is an unfinished copy of a SQLite database. Finish it: stop the service that uses the SQLite "
            "database, and run `ringback copy` again.",
            needs_operator=True,
        )


async def _read_state(connection: Connection, migrations: Sequence[Migration]) -> SchemaState:
    (table,) = await connection.fetch(_SQL["has_table"].writing)
    rows: Sequence[Row] = await connection.fetch(_SQL["applied"].writing) if table["has_table"] else ()
    applied = {row["number"]: AppliedMigration(row["sha256"], row["oldest_code"]) for row in rows}
    return compare_migrations(migrations, applied)


async def _apply_if_missing(connection: Connection, migration: Migration, migrations: Sequence[Migration]) -> None:
    """After an error the caller closes the connection, which rolls the migration back."""
    await connection.execute(_SQL["begin"].writing)
    await connection.execute(_SQL["wait_as_long_as_needed"].writing)
    await connection.execute(_SQL["make_table"].writing)
    # Read under the lock: another node may have applied it meanwhile.
    if migration in (await _read_state(connection, migrations)).missing:
        await connection.execute(_SQL["wait_briefly_for_tables"].writing)
        await connection.execute(migration.text)
        record = {"number": migration.number, "sha256": migration.sha256, "oldest_code": migration.oldest_code}
        await connection.execute(_SQL["record"].writing, *(record[name] for name in _SQL["record"].parameters))
    await connection.execute(_SQL["commit"].writing)
