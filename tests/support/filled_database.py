"""Databases with many rows that no question of a test matches, filled by SQL: a hundred thousand rows take seconds.

The crowd belongs to ALICE, who asks, and a tenth of it to BOB. It is in every state that a row can be in, and nothing of it is
due: what has a time is due at `FUTURE`, while a test asks at `NOW`. Beside it stand a few rows of every kind that a test finds.
"""

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ringback.storage.queries import parse_statements
from ringback.storage.sqlite.database import connect, enable_wal
from ringback.storage.sqlite.migrator import apply_migrations, load_migrations

PAST: Final = 500_000
NOW: Final = 1_000_000
FUTURE: Final = 9_000_000_000_000
"""Milliseconds since 1970, as every instant of the store."""
LARGE_TABLES: Final = {"calls", "events", "deliveries"}
"""Tables that get the whole crowd. The others get a fifth of it."""

_SQL: Final = parse_statements(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def fill_database(path: Path, *, rows: int) -> sqlite3.Connection:
    """A database with a crowd of so many calls, events and deliveries, and a fifth of it of everything else."""
    connection = connect(path, lock_wait_seconds=0)
    enable_wal(connection)
    apply_migrations(connection, load_migrations(), now=datetime.fromtimestamp(0, UTC))
    connection.execute("PRAGMA foreign_keys = OFF")  # what is filled here refers to what it should
    connection.execute("PRAGMA synchronous = OFF")  # and need not outlive the machine
    connection.execute("BEGIN")
    made = _drop_indexes_and_triggers(connection)
    for name, statement in _SQL.items():
        numbers = {"rows": rows if name in LARGE_TABLES else rows // 5, "past": PAST, "future": FUTURE}
        connection.execute(statement, numbers)
    for statement in made:
        connection.execute(statement)
    connection.execute("COMMIT")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _drop_indexes_and_triggers(connection: sqlite3.Connection) -> list[str]:
    """What makes them again: filling an index at once costs a fifth of filling it row by row."""
    made = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE type IN ('index', 'trigger') AND sql IS NOT NULL"
    ).fetchall()
    for row in made:
        connection.execute(f"DROP {row['type']} {row['name']}")
    return [row["sql"] for row in made]
