"""Opens the store behind a database URL."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringback.domain.clock import Clock
from ringback.domain.encryption import Sealer
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.storage.sqlite.database import to_store_unavailable
from ringback.storage.sqlite.integrity_check import IntegrityReport, check_database_file
from ringback.storage.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from ringback.storage.postgres.store import PostgresStore

_SQLITE_URL_PREFIX: Final = "sqlite:///"


@asynccontextmanager
async def open_store(
    url: str, *, clock: Clock, sealer: Sealer, exclusive: bool, accept_missing_commits: bool = False
) -> AsyncGenerator[Store]:
    """The store behind a URL, closed at the end.

    `sqlite:///relative.db`, `sqlite:////absolute.db` or a bare path; or `postgresql://user:password@host/database`, which any
    number of processes use, so that `exclusive` changes nothing.

    The service opens SQLite with `exclusive`, which one process can have at a time. Tools that read, or write a row beside a
    running service, open it without. If commits are missing, the service opens the store only with `accept_missing_commits`,
    which accepts the loss for good. Raises `StoreUnavailable`, which says what to do.
    """
    if is_postgres_url(url):
        store = _load_postgres_store()(url, clock=clock, sealer=sealer)
        await store.open()
    else:
        store = SqliteStore(sqlite_path(url), clock=clock, sealer=sealer)
        await store.open(exclusive=exclusive, accept_missing_commits=accept_missing_commits)
    try:
        yield store
    finally:
        await store.close()


def is_postgres_url(url: str) -> bool:
    """Whether the URL names a PostgreSQL database: `postgresql://user:password@host/database`."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme.partition("+")[0] in {"postgres", "postgresql"}


def _load_postgres_store() -> "type[PostgresStore]":
    """Imported when a URL asks for it: an installation on SQLite has no driver."""
    try:
        from ringback.storage.postgres.store import PostgresStore  # noqa: PLC0415 - see above
    except ImportError as error:
        raise StoreUnavailable(
            f"PostgreSQL needs a driver that is not installed ({error.name}): pip install 'ringback[postgres]'",
            needs_operator=True,
        ) from error
    return PostgresStore


def check_integrity(url: str, *, clock: Clock) -> IntegrityReport:
    """Damage and missing commits. Reads for seconds; raises `StoreUnavailable` for a file that cannot be opened."""
    try:
        return check_database_file(sqlite_path(url), clock=clock)
    except sqlite3.Error as error:
        raise to_store_unavailable(error) from error


def sqlite_path(url: str) -> Path:
    """The file that the URL names. Its folder is where the service keeps a generated key."""
    if is_postgres_url(url):
        raise StoreUnavailable("PostgreSQL keeps no file here. This needs a SQLite database.", needs_operator=True)
    if "://" in url and not url.startswith(_SQLITE_URL_PREFIX):
        raise StoreUnavailable(
            "This kind of database URL is not supported. Use SQLite (sqlite:///ringback.db) or PostgreSQL (postgresql://…).",
            needs_operator=True,
        )
    path = url.removeprefix(_SQLITE_URL_PREFIX)
    if path in {"", ":memory:"}:
        raise StoreUnavailable(
            "The database must be a file, because calls outlive the process: sqlite:///ringback.db", needs_operator=True
        )
    return Path(path)
