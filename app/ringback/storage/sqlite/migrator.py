"""Applies the migrations of SQLite's dialect, each once, in order, in a transaction of its own (`storage.migrations`)."""

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime

from ringback.domain.clock import epoch_milliseconds
from ringback.storage.migrations import AppliedMigration, Migration, SchemaState, compare_migrations, read_migrations
from ringback.storage.sqlite.database import SESSION_STATEMENTS
from ringback.storage.sqlite.statements import load_sql

_SQL = load_sql("migrator")


def load_migrations() -> list[Migration]:
    """The migrations of this version: `migrations/0001_….sql` and so on."""
    return read_migrations("ringback.storage.sqlite")


def apply_migrations(connection: sqlite3.Connection, migrations: Sequence[Migration], *, now: datetime) -> None:
    """Apply the missing migrations. Raises `StoreUnavailable` if this code may not run on the database."""
    _make_table(connection)
    for migration in compare_migrations(migrations, _read_applied(connection)).missing:
        connection.execute(SESSION_STATEMENTS["begin_writing"])
        try:
            # Read under the lock: another process may be migrating, too.
            if migration in compare_migrations(migrations, _read_applied(connection)).missing:
                _apply_migration(connection, migration, now)
            connection.execute(SESSION_STATEMENTS["commit"])
        finally:
            connection.rollback()


def read_schema_state(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> SchemaState:
    """What the database lacks. Changes nothing; raises `StoreUnavailable` if this code may not run on the database."""
    (table,) = connection.execute(_SQL["has_table"])
    return compare_migrations(migrations, _read_applied(connection) if table["has_table"] else {})


def _make_table(connection: sqlite3.Connection) -> None:
    connection.execute(_SQL["make_table"])
    if not _has_oldest_code(connection):
        connection.execute(SESSION_STATEMENTS["begin_writing"])
        try:
            if not _has_oldest_code(connection):
                connection.execute(_SQL["add_oldest_code"])
            connection.execute(SESSION_STATEMENTS["commit"])
        finally:
            connection.rollback()


def _has_oldest_code(connection: sqlite3.Connection) -> bool:
    """Whether the table is one of a version that records the oldest code. Earlier versions did not."""
    (column,) = connection.execute(_SQL["has_oldest_code"])
    return bool(column["has_oldest_code"])


def _read_applied(connection: sqlite3.Connection) -> dict[int, AppliedMigration]:
    name = "applied" if _has_oldest_code(connection) else "applied_before_oldest_code"
    return {
        row["number"]: AppliedMigration(sha256=row["sha256"], oldest_code=row["oldest_code"])
        for row in connection.execute(_SQL[name])
    }


def _apply_migration(connection: sqlite3.Connection, migration: Migration, now: datetime) -> None:
    for statement in _split_statements(migration.text):
        connection.execute(statement)
    row = {
        "number": migration.number,
        "sha256": migration.sha256,
        "applied_at": epoch_milliseconds(now),
        "oldest_code": migration.oldest_code,
    }
    connection.execute(_SQL["record"], row)


def _split_statements(text: str) -> Iterator[str]:
    """The single statements, because `executescript` commits before it begins."""
    gathered = ""
    for line in text.splitlines(keepends=True):
        gathered += line
        if sqlite3.complete_statement(gathered):
            yield gathered
            gathered = ""
