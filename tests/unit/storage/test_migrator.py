"""Migrations: each is applied once, in order; edited ones and those of newer versions are refused."""

import sqlite3
from collections.abc import Generator
from contextlib import closing
from importlib import resources

import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.storage.migrations import Migration
from ringback.storage.sqlite.database import SESSION_STATEMENTS
from ringback.storage.sqlite.migrator import apply_migrations, load_migrations, read_schema_state
from tests.support.clock import START

ONE = Migration(
    1,
    "-- With a comment; and a semicolon in it.\nCREATE TABLE one (text TEXT DEFAULT 'a;b');\n"
    "INSERT INTO one DEFAULT VALUES;\n-- the end\n",
)
TWO = Migration(2, "ALTER TABLE one ADD COLUMN more TEXT;")
BROKEN = Migration(2, "CREATE TABLE two (id);\nCREATE TABLE one (id);")


@pytest.fixture
def connection() -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


def columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row["name"] for row in connection.execute("SELECT name FROM pragma_table_info(?)", [table])]


def test_each_migration_is_applied_once_and_in_order(connection: sqlite3.Connection) -> None:
    apply_migrations(connection, [ONE], now=START)
    apply_migrations(connection, [ONE, TWO], now=START)
    apply_migrations(connection, [ONE, TWO], now=START)

    assert columns(connection, "one") == ["text", "more"]
    assert [tuple(row) for row in connection.execute("SELECT * FROM one")] == [("a;b", None)]
    recorded = connection.execute("SELECT number, sha256, applied_at FROM schema_migrations").fetchall()
    assert [tuple(row) for row in recorded] == [
        (migration.number, migration.sha256, 1_795_194_000_000) for migration in (ONE, TWO)
    ]


def test_a_migration_that_fails_leaves_nothing_behind(connection: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.OperationalError):
        apply_migrations(connection, [ONE, BROKEN], now=START)

    assert columns(connection, "one") == ["text"]
    assert columns(connection, "two") == []
    apply_migrations(connection, [ONE, TWO], now=START)
    assert columns(connection, "one") == ["text", "more"]


def test_a_migration_that_was_edited_after_it_was_applied_is_refused(connection: sqlite3.Connection) -> None:
    apply_migrations(connection, [ONE], now=START)

    with pytest.raises(StoreUnavailable, match="Migration 1 is not the one that made this database"):
        apply_migrations(connection, [Migration(1, f"{ONE.text} "), TWO], now=START)

    assert columns(connection, "one") == ["text"]


def test_a_database_of_a_newer_version_is_refused(connection: sqlite3.Connection) -> None:
    apply_migrations(connection, [ONE, TWO], now=START)

    with pytest.raises(StoreUnavailable, match=r"newer version \(migration 2\)"):
        apply_migrations(connection, [ONE], now=START)


def test_a_newer_migration_that_allows_it_lets_older_code_run(connection: sqlite3.Connection) -> None:
    allowing = Migration(2, "-- oldest code: 1\nALTER TABLE one ADD COLUMN more TEXT;")
    forbidding = Migration(3, "ALTER TABLE one DROP COLUMN more;")
    apply_migrations(connection, [ONE, allowing], now=START)

    apply_migrations(connection, [ONE], now=START)

    assert columns(connection, "one") == ["text", "more"]
    apply_migrations(connection, [ONE, allowing, forbidding], now=START)
    with pytest.raises(StoreUnavailable, match=r"newer version \(migration 3\). This version knows 2"):
        apply_migrations(connection, [ONE, allowing], now=START)


def test_a_database_whose_migrations_were_recorded_without_their_oldest_code_needs_code_that_knows_them(
    connection: sqlite3.Connection,
) -> None:
    connection.execute("CREATE TABLE schema_migrations (number INTEGER PRIMARY KEY, sha256 TEXT, applied_at INTEGER)")
    for migration in (ONE, TWO):
        connection.executescript(migration.text)
        connection.execute("INSERT INTO schema_migrations VALUES (?, ?, 0)", [migration.number, migration.sha256])

    assert read_schema_state(connection, [ONE, TWO]).missing == []
    with pytest.raises(StoreUnavailable, match=r"newer version \(migration 2\)"):
        apply_migrations(connection, [ONE], now=START)
    apply_migrations(connection, [ONE, TWO, Migration(3, "-- oldest code: 2\nCREATE TABLE three (id);")], now=START)
    recorded = connection.execute("SELECT number, oldest_code FROM schema_migrations").fetchall()
    assert [tuple(row) for row in recorded] == [(1, None), (2, None), (3, 2)]


def test_reading_the_state_of_a_schema_changes_nothing(connection: sqlite3.Connection) -> None:
    state = read_schema_state(connection, [ONE, TWO])

    assert (state.applied, state.known, state.missing, state.oldest_code) == (0, 2, [ONE, TWO], 2)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []


def test_shipped_migrations_are_numbered_without_gaps_and_every_statement_is_valid(
    connection: sqlite3.Connection,
) -> None:
    migrations = load_migrations()
    apply_migrations(connection, migrations, now=START)

    assert [migration.number for migration in migrations] == list(range(1, len(migrations) + 1))
    assert SESSION_STATEMENTS
    folder = resources.files("ringback.storage.sqlite") / "sql"
    assert {file.name for file in folder.iterdir()} >= {"calls.sql", "deliveries.sql"}
