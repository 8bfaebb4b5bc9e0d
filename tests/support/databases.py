"""The databases of the running test: SQLite files, or databases of the test run's PostgreSQL.

database_url(tmp_path)           the same URL for the same folder, so that a service starts again on its database
query_rows(tmp_path, "SELECT …") looks into it from outside, with `?` for parameters
"""

import functools
import sqlite3
from base64 import b64encode
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from ringback.signing.sealing import KEY_BYTES
from ringback.storage.postgres.migrator import migrate_database
from tests.support.postgres import shared_postgres
from tests.support.postgres_databases import DatabasePool

FILE_NAME: Final = "ringback.db"
SECRET_KEYS: Final = f"test:{b64encode(b'k' * KEY_BYTES).decode()}"
"""PostgreSQL has no folder for a key that the service makes."""


class StoreKind(StrEnum):
    SQLITE = "sqlite"
    POSTGRES = "postgres"


class TestDatabases:
    """Each folder of a test has one database. On PostgreSQL they go back to the pool when their scope ends."""

    __test__ = False

    def __init__(self) -> None:
        self.kind = StoreKind.SQLITE
        self._names: dict[Path, str] = {}
        self._kept_connections: dict[Path, sqlite3.Connection | None] = {}

    def url(self, folder: Path) -> str:
        if self.kind is StoreKind.SQLITE:
            return f"sqlite:///{folder / FILE_NAME}"
        return database_pool().address.url(self._name(folder))

    def query_rows(self, folder: Path, statement: str, *parameters: Any) -> Sequence[tuple[Any, ...]]:
        with self._querying(folder) as query:
            return query(statement, *parameters)

    def count_rows(self, folder: Path) -> Mapping[str, int]:
        with self._querying(folder) as query:
            tables = [str(name) for (name,) in query(_TABLES[self.kind])]
            return dict(query(" UNION ALL ".join(f"SELECT '{table}', count(*) FROM {table}" for table in tables)))  # noqa: S608 - its names

    def read_tables(self, folder: Path) -> Mapping[str, Sequence[tuple[Any, ...]]]:
        with self._querying(folder) as query:
            return {str(name): query(f"SELECT * FROM {name}") for (name,) in query(_TABLES[self.kind])}  # noqa: S608 - its names

    @contextmanager
    def _querying(self, folder: Path) -> Generator[Callable[..., Sequence[tuple[Any, ...]]]]:
        """A function for several statements. On SQLite they share a connection, because each reads the whole schema."""
        if self.kind is StoreKind.POSTGRES:
            name = self._name(folder)

            def query(statement: str, *parameters: Any) -> Sequence[tuple[Any, ...]]:
                return database_pool().query_rows(name, number_parameters(statement), *parameters)

            yield query
            return
        with self._connecting(folder) as connection, connection:

            def execute(statement: str, *parameters: Any) -> Sequence[tuple[Any, ...]]:
                return connection.execute(statement, parameters).fetchall()

            yield execute

    @contextmanager
    def keep_connection(self, folder: Path) -> Generator[None]:
        """Queries of this folder share a connection on SQLite: a new one reads the whole schema, which takes 3 ms.

        Leave it before the service ends, whose last connection checkpoints the log.
        """
        self._kept_connections[folder] = None
        try:
            yield
        finally:
            connection = self._kept_connections.pop(folder)
            if connection is not None:
                connection.close()

    def _connecting(self, folder: Path) -> AbstractContextManager[sqlite3.Connection]:
        if folder not in self._kept_connections:
            return closing(sqlite3.connect(folder / FILE_NAME))
        connection = self._kept_connections[folder] or sqlite3.connect(folder / FILE_NAME)
        self._kept_connections[folder] = connection
        return nullcontext(connection)

    @contextmanager
    def of_kind(self, kind: StoreKind) -> Generator[None]:
        """The kind of all databases that are first used from now on."""
        before, self.kind = self.kind, kind
        try:
            with self.scope():
                yield
        finally:
            self.kind = before

    @contextmanager
    def scope(self) -> Generator[None]:
        """Gives back the databases that were first used within it."""
        before = set(self._names)
        try:
            yield
        finally:
            for folder in set(self._names) - before:
                self.give_back(folder)

    def give_back(self, folder: Path) -> None:
        """Give the folder's database back before the end of the test, which uses many folders."""
        if folder in self._names:
            database_pool().give_back(self._names.pop(folder))

    def _name(self, folder: Path) -> str:
        if folder not in self._names:
            self._names[folder] = database_pool().take()
        return self._names[folder]


@functools.cache
def database_pool() -> DatabasePool:
    return DatabasePool(shared_postgres(), migrate_database)


@contextmanager
def migrated_postgres() -> Generator[str]:
    """The URL of a PostgreSQL database with empty tables, whatever the kind of the test's databases."""
    pool = database_pool()
    name = pool.take()
    yield pool.address.url(name)
    pool.give_back(name)  # not after an error, which leaves it in a state that no later test expects


TEST_DATABASES: Final = TestDatabases()


def database_url(folder: Path) -> str:
    """The URL of the running test's database for this folder."""
    return TEST_DATABASES.url(folder)


def needed_settings() -> dict[str, str]:
    """The settings that a service needs on this kind of store, besides its URL."""
    return {} if TEST_DATABASES.kind is StoreKind.SQLITE else {"secret_keys": SECRET_KEYS}


def service_environment() -> dict[str, str]:
    """The same as environment variables."""
    return {f"RINGBACK_{name.upper()}": value for name, value in needed_settings().items()}


def query_rows(folder: Path, statement: str, *parameters: Any) -> Sequence[tuple[Any, ...]]:
    """The rows of a statement that is committed at once, beside the service."""
    return TEST_DATABASES.query_rows(folder, statement, *parameters)


def count_rows(folder: Path) -> Mapping[str, int]:
    """The number of rows of each table."""
    return TEST_DATABASES.count_rows(folder)


def read_tables(folder: Path) -> Mapping[str, Sequence[tuple[Any, ...]]]:
    """All rows of each table."""
    return TEST_DATABASES.read_tables(folder)


_TABLES: Final = {
    StoreKind.SQLITE: "SELECT name FROM sqlite_master WHERE type = 'table'",
    StoreKind.POSTGRES: "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
}


def number_parameters(statement: str) -> str:
    """`$1`, `$2`, … instead of each `?`."""
    first, *rest = statement.split("?")
    return first + "".join(f"${number}{text}" for number, text in enumerate(rest, start=1))
