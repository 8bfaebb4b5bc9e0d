"""Numbered migrations, each applied once, in order, in a transaction of its own.

A table records each applied migration with its digest. A migration that was edited afterwards is refused, because two databases
of one version would differ. A database that a newer version has changed is refused, too.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from typing import Final

from ringback.domain import jsontext
from ringback.domain.clock import epoch_milliseconds
from ringback.domain.errors import StoreUnavailable
from ringback.storage.sqlite.database import SESSION_STATEMENTS
from ringback.storage.sqlite.statements import load_sql

_SQL: Final = load_sql("migrator")


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    text: str

    @property
    def sha256(self) -> str:
        return jsontext.sha256(self.text.encode())


def load_migrations() -> list[Migration]:
    """The migrations of this version: `migrations/0001_….sql` and so on."""
    folder = resources.files("ringback.storage.sqlite") / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [Migration(int(file.name.partition("_")[0]), file.read_text(encoding="utf-8")) for file in files]


def apply_migrations(connection: sqlite3.Connection, migrations: Sequence[Migration], *, now: datetime) -> None:
    """Apply the missing migrations. Raises `StoreUnavailable` if the database has others than these."""
    connection.execute(_SQL["make_table"])
    for migration in migrations:
        connection.execute(SESSION_STATEMENTS["begin_writing"])
        try:
            # Read under the lock: another process may be migrating, too.
            if migration.number not in _read_applied(connection, migrations):
                _apply_migration(connection, migration, now)
            connection.execute(SESSION_STATEMENTS["commit"])
        finally:
            connection.rollback()


def _read_applied(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> set[int]:
    shipped = {migration.number: migration for migration in migrations}
    applied: dict[int, str] = {row["number"]: row["sha256"] for row in connection.execute(_SQL["applied"])}
    for number, sha256 in applied.items():
        if number not in shipped:
            raise StoreUnavailable(
                f"The database was changed by a newer version (migration {number}). Run that version, or a later one.",
                needs_operator=True,
            )
        if shipped[number].sha256 != sha256:
            raise StoreUnavailable(
                f"Migration {number} is not the one that made this database. Run the version that made it, unchanged.",
                needs_operator=True,
            )
    return set(applied)


def _apply_migration(connection: sqlite3.Connection, migration: Migration, now: datetime) -> None:
    for statement in _split_statements(migration.text):
        connection.execute(statement)
    row = {"number": migration.number, "sha256": migration.sha256, "applied_at": epoch_milliseconds(now)}
    connection.execute(_SQL["record"], row)


def _split_statements(text: str) -> Iterator[str]:
    """The single statements, because `executescript` commits before it begins."""
    gathered = ""
    for line in text.splitlines(keepends=True):
        gathered += line
        if sqlite3.complete_statement(gathered):
            yield gathered
            gathered = ""
