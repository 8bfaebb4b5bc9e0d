"""Empty databases for the measured runs: SQLite files, or databases of a PostgreSQL server that starts and stops with the run.

The server comes from PyPI, as in the tests, with PostgreSQL's default durability (fsync and synchronous_commit on).
`RINGBACK_BENCH_POSTGRES_URL` names a server to use instead, by the URL of a user who may create databases.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

import asyncpg

from tests.support.postgres_instance import PostgresAddress, PostgresInstance

SQLITE_URL_PREFIX: Final = "sqlite:///"
URL_VARIABLE: Final = "RINGBACK_BENCH_POSTGRES_URL"
SERVER_SETTINGS: Final = {
    # A small server of production: its cache holds the benchmark's tables, and not every round has a checkpoint.
    "shared_buffers": "512MB",
    "max_connections": "200",
    "max_wal_size": "4GB",
    # PostgreSQL's defaults, in the place of those that make tests harder.
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "default_transaction_isolation": "read committed",
}
FOLDER_MODE: Final = 0o711
"""PostgreSQL's user, another one under root, passes through the folder."""


class StoreKind(StrEnum):
    SQLITE = "sqlite"
    POSTGRES = "postgres"


class Databases(Protocol):
    def empty_database(self) -> AbstractAsyncContextManager[str]:
        """The URL of a database without tables, which is removed at the end."""
        ...


class SqliteDatabases:
    @asynccontextmanager
    async def empty_database(self) -> AsyncGenerator[str]:
        with TemporaryDirectory(prefix="ringback-bench-") as folder:
            yield f"{SQLITE_URL_PREFIX}{Path(folder) / 'ringback.db'}"


class PostgresDatabases:
    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._made = 0

    @asynccontextmanager
    async def empty_database(self) -> AsyncGenerator[str]:
        self._made += 1
        name = f"ringback_bench_{os.getpid()}_{self._made}"
        await self._execute(f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            yield self._address.url(name)
        finally:
            await self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self._address.socket_url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


WITHOUT_FSYNC: Final = {"fsync": "off"}
"""Settings of a server that waits for no disk, which shows what else takes time."""


@asynccontextmanager
async def databases(kind: StoreKind) -> AsyncGenerator[Databases]:
    if kind is StoreKind.SQLITE:
        yield SqliteDatabases()
        return
    async with postgres_server() as address:
        yield PostgresDatabases(address)


@asynccontextmanager
async def postgres_server() -> AsyncGenerator[PostgresAddress]:
    if url := os.environ.get(URL_VARIABLE):
        yield PostgresAddress(socket_url=url, network_url=url)
        return
    async with _own_server(SERVER_SETTINGS) as address:
        yield address


@asynccontextmanager
async def databases_without_fsync() -> AsyncGenerator[Databases]:
    """On a server of the benchmark, whatever `RINGBACK_BENCH_POSTGRES_URL` names."""
    async with _own_server(SERVER_SETTINGS | WITHOUT_FSYNC) as address:
        yield PostgresDatabases(address)


@asynccontextmanager
async def _own_server(settings: Mapping[str, str]) -> AsyncGenerator[PostgresAddress]:
    with TemporaryDirectory(prefix="ringback-bench-pg-") as folder:
        server = await asyncio.to_thread(_start_server, Path(folder), settings)
        try:
            yield server.address
        finally:
            await asyncio.to_thread(server.stop, signal.SIGINT)


def _start_server(folder: Path, settings: Mapping[str, str]) -> PostgresInstance:
    folder.chmod(FOLDER_MODE)
    server = PostgresInstance(folder, settings=settings)
    server.create()
    server.start()
    return server
