"""Opens the store behind a database URL."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ringback.domain.clock import Clock
from ringback.domain.encryption import Sealer
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.storage.schema import driver_missing
from ringback.storage.sqlite.database import to_store_unavailable
from ringback.storage.sqlite.integrity_check import IntegrityReport, check_database_file
from ringback.storage.sqlite.store import SqliteStore
from ringback.storage.sqlite.use_mark import require_not_moved, require_whole_if_unused
from ringback.storage.urls import find_sqlite_path, require_sqlite_path

if TYPE_CHECKING:
    from ringback.storage.postgres.inspection import ServerReport
    from ringback.storage.postgres.store import PostgresStore


@asynccontextmanager
async def open_store(
    url: str, *, clock: Clock, sealer: Sealer, exclusive: bool, accept_missing_commits: bool = False
) -> AsyncGenerator[Store]:
    """The store behind a URL, closed at the end.

    `sqlite:///relative.db`, `sqlite:////absolute.db` or a bare path; or `postgresql://user:password@host/database`, which any
    number of processes use.

    The service opens the store with `exclusive`: of SQLite, one process can have it at a time. Tools that read, or write a row
    beside a running service, open it without, and do not upgrade the database of a service of an earlier version. If
    commits are missing, or the file was moved to another database, the service opens the store only with
    `accept_missing_commits`, which accepts that for good. Raises `StoreUnavailable`, which says what to do.
    """
    if find_sqlite_path(url) is None:
        store = _load_postgres_store()(url, clock=clock, sealer=sealer)
        await store.open(beside_nodes=not exclusive)
    else:
        store = SqliteStore(require_sqlite_path(url), clock=clock, sealer=sealer)
        await store.open(exclusive=exclusive, accept_missing_commits=accept_missing_commits)
    try:
        yield store
    finally:
        await store.close()


def _load_postgres_store() -> "type[PostgresStore]":
    """Imported when a URL asks for it: an installation on SQLite has no driver."""
    try:
        from ringback.storage.postgres.store import PostgresStore  # noqa: PLC0415 - see above
    except ImportError as error:
        raise driver_missing(error) from error
    return PostgresStore


def check_integrity(url: str, *, clock: Clock) -> IntegrityReport:
    """Damage and missing commits. Reads for seconds; raises `StoreUnavailable` for a file that cannot be opened."""
    try:
        return check_database_file(require_sqlite_path(url), clock=clock)
    except sqlite3.Error as error:
        raise to_store_unavailable(error) from error


def find_refusal(url: str) -> StoreUnavailable | None:
    """The error for a file that was moved, or whose log is missing or damaged; None for any other. Opens nothing."""
    path = require_sqlite_path(url)
    try:
        require_not_moved(path)
        require_whole_if_unused(path)
    except StoreUnavailable as refusal:
        return refusal
    return None


async def inspect_server(url: str) -> "ServerReport":
    """What an operator wants to know about a PostgreSQL server. Raises `StoreUnavailable`."""
    _load_postgres_store()
    from ringback.storage.postgres import inspection  # noqa: PLC0415 - an installation on SQLite has no driver

    return await inspection.inspect_server(url)
