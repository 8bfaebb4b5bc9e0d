"""Databases with many rows that no query of a test matches, filled by SQL: a hundred thousand rows take seconds.

The filler rows belong to ALICE, who queries, and a tenth of them to BOB. They have every state that a row can have, and none is
due: their times are at `FUTURE`, and a test queries at `NOW`. A few further rows of every kind match the queries.
"""

import sqlite3
from pathlib import Path
from typing import Final

from ringback.storage.queries import parse_statements
from ringback.storage.sqlite.database import connect, enable_wal
from tests.support.shared_setup import create_tables

PAST: Final = 500_000
NOW: Final = 1_000_000
FUTURE: Final = 9_000_000_000_000
"""Milliseconds since 1970, as every instant of the store."""
LARGE_TABLES: Final = {"calls", "events", "deliveries", "mcp_sessions"}
"""Tables with all filler rows. The others have a fifth."""

_SQL: Final = parse_statements(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def fill_database(path: Path, *, rows: int) -> sqlite3.Connection:
    """A database with this number of calls, events, deliveries and sessions, and a fifth of it of everything else."""
    connection = connect(path, lock_wait_seconds=0)
    enable_wal(connection)
    create_tables(connection)
    connection.execute("PRAGMA foreign_keys = OFF")  # the filled rows are consistent
    connection.execute("PRAGMA synchronous = OFF")  # the file is temporary
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
    """Drop indexes and triggers, and return the statements that create them: building an index at once costs a fifth."""
    made = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE type IN ('index', 'trigger') AND sql IS NOT NULL"
    ).fetchall()
    for row in made:
        connection.execute(f"DROP {row['type']} {row['name']}")
    return [row["sql"] for row in made]
