"""Inserts of several rows by one statement."""

import sqlite3
from collections.abc import Generator, Iterable
from contextlib import closing
from typing import Any

import pytest

from ringback.domain.clock import SystemClock
from ringback.storage.sqlite.inserts import TABLES_WITH_INSERT_TRIGGERS, parse_triggering_insert
from ringback.storage.sqlite.migrator import apply_migrations, load_migrations
from ringback.storage.sqlite.statements import SqliteStatements, load_sql


class CountingConnection(sqlite3.Connection):
    """Counts the statements that it runs; triggers are no statements."""

    statements = 0

    def execute(self, statement: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self.statements += 1
        return super().execute(statement, parameters)

    def executemany(self, statement: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        rows = list(parameters)
        self.statements += len(rows)
        return super().executemany(statement, rows)


@pytest.fixture
def connection() -> Generator[CountingConnection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None, factory=CountingConnection)) as opened:
        opened.row_factory = sqlite3.Row
        apply_migrations(opened, load_migrations(), now=SystemClock().now())
        yield opened


@pytest.mark.parametrize(
    ("table", "expected"), [("bodies", True), ("events", True), ("attempts", False), ("results", False)]
)
def test_the_tables_are_those_with_triggers_for_new_rows(
    connection: CountingConnection, table: str, *, expected: bool
) -> None:
    rows = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", (table,))
    assert any("AFTER INSERT" in row["sql"] for row in rows) is expected
    assert (table in TABLES_WITH_INSERT_TRIGGERS) is expected


@pytest.mark.parametrize(("count", "statements"), [(0, 0), (1, 1), (7, 7), (8, 1), (32, 1), (75, 6)])
async def test_rows_are_inserted_by_few_statements_and_in_their_order(
    connection: CountingConnection, count: int, statements: int
) -> None:
    connection.execute("PRAGMA foreign_keys = OFF")
    rows = [{"id": f"dlv_{number}", "body": b"%d" % number, "principal": "owner"} for number in range(count)]
    before = connection.statements
    await SqliteStatements(connection, load_sql("deliveries")).execute_many("insert_body", rows)
    assert connection.statements - before == statements
    stored = connection.execute("SELECT delivery_id AS id, body, principal FROM bodies ORDER BY rowid")
    assert [dict(row) for row in stored] == rows


async def test_the_values_of_each_column_are_those_of_its_parameter(connection: CountingConnection) -> None:
    statement = load_sql("events")["insert"]
    inserting = parse_triggering_insert(statement)
    assert inserting is not None
    numbers = {"seq", "created_at", "occurred_at"}
    rows = [
        {name: number if name in numbers else f"{name} {number}" for name in inserting.names} for number in range(8)
    ]
    await SqliteStatements(connection, load_sql("events")).execute_many("insert", rows)
    assert [dict(row) for row in connection.execute("SELECT * FROM events ORDER BY seq")] == rows


@pytest.mark.parametrize(("noun", "name"), [("delivery_queue", "insert_attempt"), ("deliveries", "insert")])
def test_other_statements_run_as_they_are(noun: str, name: str) -> None:
    assert parse_triggering_insert(load_sql(noun)[name]) is None
