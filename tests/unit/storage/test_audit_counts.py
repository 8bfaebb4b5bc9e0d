"""Entries of the audit log that older code has written to a SQLite database, or still writes, are counted."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from ringback.storage.sqlite.database import connect
from ringback.storage.sqlite.migrator import apply_migrations, load_migrations
from tests.support.clock import START

OLDER = [migration for migration in load_migrations() if migration.number < 37]


def append(connection: sqlite3.Connection, owners: Sequence[str | None]) -> None:
    statement = "INSERT INTO audit_entries (at, surface, operation, owner) VALUES (1, 'rest', 'test_webhook', ?)"
    connection.executemany(statement, [(owner,) for owner in owners])


def count(connection: sqlite3.Connection) -> dict[str, int]:
    return dict(tuple(row) for row in connection.execute("SELECT owner, entries FROM audit_counts"))


def test_entries_of_before_and_of_older_code_are_counted_until_they_are_removed(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "ringback.db", lock_wait_seconds=0)) as connection:
        apply_migrations(connection, OLDER, now=START)
        append(connection, ["alice", "alice", "bob", None])
        apply_migrations(connection, load_migrations(), now=START)
        assert count(connection) == {"alice": 2, "bob": 1}

        append(connection, ["alice", None])
        connection.execute("DELETE FROM audit_entries WHERE owner = 'bob'")

        assert count(connection) == {"alice": 3}
