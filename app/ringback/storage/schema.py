"""The state of the schema behind a database URL, read without changing anything."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from ringback.domain.errors import StoreUnavailable
from ringback.storage.migrations import SchemaState, compare_migrations
from ringback.storage.sqlite import migrator
from ringback.storage.sqlite.database import connect, explain_opening
from ringback.storage.sqlite.use_mark import require_whole_if_unused
from ringback.storage.urls import find_sqlite_path

LOCK_WAIT_SECONDS: Final = 5.0
"""As long as the opening of a store waits for another process that writes."""


async def read_schema_state(url: str, *, to_migrate: bool = False) -> SchemaState:
    """Raises `StoreUnavailable` if the database cannot be read, or if this version may not run on it.

    With `to_migrate` also if it is a standby of PostgreSQL, even one that lacks nothing: it names the wrong server.
    """
    path = find_sqlite_path(url)
    if path is None:
        return await _read_postgres(url, to_migrate=to_migrate)
    return await asyncio.to_thread(_read_sqlite, path)


async def _read_postgres(url: str, *, to_migrate: bool) -> SchemaState:
    try:  # imported when a URL asks for it: an installation on SQLite has no driver
        from ringback.storage.postgres import migrator as postgres  # noqa: PLC0415 - an installation on SQLite has no driver
        from ringback.storage.postgres.errors import to_store_unavailable as explain  # noqa: PLC0415 - the same
    except ImportError as error:
        raise driver_missing(error) from error
    try:
        return await postgres.read_schema_state(url, to_migrate=to_migrate)
    except Exception as error:
        raise explain(error) from error


async def find_other_installations(url: str) -> Sequence[str]:
    """The schemas of a PostgreSQL database that have other installations. Raises `StoreUnavailable`."""
    from ringback.storage.postgres import migrator as postgres  # noqa: PLC0415 - see `_read_postgres`
    from ringback.storage.postgres.errors import to_store_unavailable as explain  # noqa: PLC0415 - the same

    try:
        return await postgres.find_other_installations(url)
    except Exception as error:
        raise explain(error) from error


def _read_sqlite(path: Path) -> SchemaState:
    migrations = migrator.load_migrations()
    if not path.exists():
        return compare_migrations(migrations, {})
    require_whole_if_unused(path)
    try:
        with closing(connect(path, lock_wait_seconds=LOCK_WAIT_SECONDS)) as connection:
            return migrator.read_schema_state(connection, migrations)
    except sqlite3.Error as error:
        raise explain_opening(error, path) from error


def driver_missing(error: ImportError) -> StoreUnavailable:
    """The error for an installation without the driver of PostgreSQL."""
    return StoreUnavailable(
        f"PostgreSQL needs a driver that is not installed ({error.name}): pip install 'ringback[postgres]'",
        needs_operator=True,
    )
