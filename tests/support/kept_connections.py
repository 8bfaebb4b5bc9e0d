"""PostgreSQL connections that outlive a test, as those of a service outlive its requests.

    with keep_connections():      stores that this module's tests open on the pool's databases take and leave connections here

A new connection parses and plans each statement at its first use, which is most of the CPU time of a test with a store on
PostgreSQL: 40 ms of the server and 30 ms of the test for one call, and 10 ms for each further one (measured). A connection
belongs to an event loop, so the tests of the module share one.
"""

import asyncio
from collections import defaultdict
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, cast

import asyncpg
import pytest
from anyio.pytest_plugin import get_runner

from ringback.storage.postgres import driver, store
from ringback.storage.postgres.driver import Connection
from ringback.storage.postgres.migrator import migrate_database
from tests.support.databases import database_pool
from tests.support.postgres_databases import APPLICATION_NAME

_LEAVE: Final = f"UNLISTEN *; SELECT pg_advisory_unlock_all(); SET application_name = '{APPLICATION_NAME}'"
"""With this name, the pool does not end the session when a test gives its database back."""
_TAKE: Final = f"SET application_name = '{driver.SERVER_SETTINGS['application_name']}'"
_IDLE_MAX: Final = 8
"""Of each database."""


class KeptConnection:
    """A connection of a store. Its close leaves it to the next store of the same database, unless it is in a transaction."""

    def __init__(self, connection: Connection, idle: list[Connection]) -> None:
        self._connection = connection
        self._idle = idle
        self._is_closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def is_closed(self) -> bool:
        return self._is_closed or self._connection.is_closed()

    def terminate(self) -> None:
        self._is_closed = True
        self._connection.terminate()

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncpg's
        if self.is_closed():
            return
        self._is_closed = True
        if self._connection.is_in_transaction() or len(self._idle) >= _IDLE_MAX:
            await self._connection.close(timeout=timeout)
            return
        await _execute(self._connection, _LEAVE)
        self._idle.append(self._connection)


async def _execute(connection: Connection, statement: str) -> None:
    """A connection whose statement failed or was cancelled is closed."""
    try:
        await connection.execute(statement)
    except BaseException:
        connection.terminate()
        raise


class KeptConnections:
    def __init__(self) -> None:
        self._idle: defaultdict[tuple[str, ...], list[Connection]] = defaultdict(list)
        """By the URL and the settings of the sessions, which some tests change."""

    async def connect(self, url: str) -> Connection:
        """An idle connection of the same database with the same settings, or a new one."""
        idle = self._idle[url, *driver.SERVER_SETTINGS.values()]
        while idle:
            connection = idle.pop()
            with suppress(asyncpg.InterfaceError, asyncpg.PostgresError, OSError):
                await _execute(connection, _TAKE)
                return cast("Connection", KeptConnection(connection, idle))
        return cast("Connection", KeptConnection(await driver.connect_for_units(url), idle))

    def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.terminate()


@contextmanager
def keep_connections() -> Generator[None]:
    """Tests that run meanwhile share an event loop, and their stores share connections."""
    with ExitStack() as stack:
        runner: Any = stack.enter_context(get_runner("asyncio", {}))
        kept = KeptConnections()
        stack.callback(kept.close)
        loop: asyncio.AbstractEventLoop = runner.get_loop()

        async def connect(url: str) -> Connection:
            shares_loop = asyncio.get_running_loop() is loop
            return await (kept.connect(url) if shares_loop else driver.connect_for_units(url))

        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(store, "connect_for_units", connect)
        patch.setattr(store, "migrate_database", migrate_unless_pooled)
        yield


async def migrate_unless_pooled(url: str, *, beside_nodes: bool = False) -> None:
    """A `migrate_database` that looks into no database of the pool: these have all tables."""
    if not database_pool().has_tables(url):
        await migrate_database(url, beside_nodes=beside_nodes)
