"""From a database URL to an open store."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.domain.sealed import Sealer
from ringback.storage.sqlite.store import SqliteStore

_SQLITE: Final = "sqlite:///"


@asynccontextmanager
async def open_store(url: str, *, clock: Clock, sealer: Sealer, exclusive: bool) -> AsyncGenerator[Store]:
    """The store behind `sqlite:///relative.db`, `sqlite:////absolute.db` or a bare path, closed at the end.

    With `exclusive` it is this process's to serve: opening it a second time so is refused. Tools that only look or write a
    row beside a running service open it without. Raises `StoreUnavailable` with a detail that says what to do.
    """
    store = SqliteStore(sqlite_path(url), clock=clock, sealer=sealer)
    await store.open(exclusive=exclusive)
    try:
        yield store
    finally:
        await store.close()


def sqlite_path(url: str) -> Path:
    """The file that the URL names; also where a service that keeps a key beside its database finds the folder."""
    scheme, separator, _ = url.partition("://")
    if separator and scheme.partition("+")[0] in {"postgres", "postgresql"}:
        raise StoreUnavailable("PostgreSQL is not there yet. Use SQLite: sqlite:///ringback.db")
    if separator and not url.startswith(_SQLITE):
        raise StoreUnavailable("This database URL is of no kind we know. Use SQLite: sqlite:///ringback.db")
    path = url.removeprefix(_SQLITE)
    if path in {"", ":memory:"}:
        raise StoreUnavailable("The database must be a file, because calls outlive the process: sqlite:///ringback.db")
    return Path(path)
