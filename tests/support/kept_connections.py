"""PostgreSQL connections that outlive a test, as those of a service outlive its requests.

    with keep_connections():      stores that tests open meanwhile on the pool's databases take and leave connections here
    FOLDER_CONNECTIONS.keep()     the same until the last test of the folder has ended

A new connection parses and plans each statement at its first use, which is most of the CPU time of a test with a store on
PostgreSQL: 40 ms of the server and 30 ms of the test for one call, and 10 ms for each further one (measured). A connection
belongs to an event loop, so these tests share one.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, cast

import asyncpg
import pytest
from anyio.pytest_plugin import get_runner

from ringback.storage.postgres import driver, notifications, store
from ringback.storage.postgres.driver import Connection, ListeningConnection
from ringback.storage.postgres.migrator import migrate_database
from tests.support.databases import database_pool
from tests.support.postgres_databases import APPLICATION_NAME

_LEAVE: Final = f"SELECT pg_advisory_unlock_all(); SET application_name = '{APPLICATION_NAME}'"
"""With this name, the pool does not end the session when a test gives its database back."""
_IDLE_MAX: Final = 8
"""Of each database."""


Idle = list["asyncpg.Connection[asyncpg.Record]"]


class KeptConnection:
    """A connection of a store. Its close leaves it to the next store of the same database, unless it is in a transaction."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]", idle: "Idle") -> None:
        self._connection = connection
        self._idle = idle
        self._is_closed = False
        self._listeners: list[tuple[str, Callable[..., None]]] = []
        self._termination_listeners: list[Callable[..., None]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def is_closed(self) -> bool:
        return self._is_closed or self._connection.is_closed()

    def terminate(self) -> None:
        self._is_closed = True
        self._connection.terminate()

    async def add_listener(self, channel: str, callback: Callable[..., None], /) -> None:
        self._listeners.append((channel, callback))
        await self._connection.add_listener(channel, callback)

    def add_termination_listener(self, callback: Callable[..., None], /) -> None:
        self._termination_listeners.append(callback)
        self._connection.add_termination_listener(callback)

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncpg's
        if self.is_closed():
            return
        self._is_closed = True
        if self._connection.is_in_transaction() or len(self._idle) >= _IDLE_MAX:
            await self._connection.close(timeout=timeout)
            return
        await self._remove_listeners()
        await _execute(self._connection, _LEAVE)
        self._idle.append(self._connection)

    async def _remove_listeners(self) -> None:
        for termination_listener in self._termination_listeners:
            self._connection.remove_termination_listener(termination_listener)
        for channel, listener in self._listeners:
            await self._connection.remove_listener(channel, listener)


async def _execute(connection: "asyncpg.Connection[asyncpg.Record]", statement: str) -> None:
    """A connection whose statement failed or was cancelled is closed."""
    try:
        await connection.execute(statement)
    except BaseException:
        connection.terminate()
        raise


class KeptConnections:
    def __init__(self) -> None:
        self._idle: defaultdict[tuple[str, ...], Idle] = defaultdict(list)
        """By the URL and the settings of the sessions, which some tests change."""

    async def connect(self, url: str, *, server_settings: Mapping[str, str] | None = None) -> ListeningConnection:
        """An idle connection of the same database with the same settings, or a new one."""
        settings = {**driver.SERVER_SETTINGS, **(server_settings or {})}
        idle = self._idle[url, *settings.values()]
        while idle:
            connection = idle.pop()
            # asyncpg raises the internal error if the server's farewell arrives before the statement is sent.
            with suppress(asyncpg.InterfaceError, asyncpg.InternalClientError, asyncpg.PostgresError, OSError):
                await _execute(connection, f"SET application_name = '{settings['application_name']}'")
                return cast("ListeningConnection", KeptConnection(connection, idle))
        new: Any = await driver.connect(url, server_settings=settings)
        return cast("ListeningConnection", KeptConnection(new, idle))

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

        async def connect(url: str, *, server_settings: dict[str, str] | None = None) -> Connection:
            make = kept.connect if asyncio.get_running_loop() is loop else driver.connect
            return await make(url, server_settings=server_settings)

        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(store, "connect_for_units", connect)
        patch.setattr(notifications, "connect", connect)
        patch.setattr(store, "migrate_database", migrate_unless_pooled)
        yield


class FolderConnections:
    """A plugin of pytest, whose fixtures know no folder: the package scope lasts for the whole run without `__init__.py`."""

    def __init__(self) -> None:
        self._kept = ExitStack()
        self._is_keeping = False

    def keep(self) -> None:
        if not self._is_keeping:
            self._kept.enter_context(keep_connections())
            self._is_keeping = True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
        try:
            return (yield)
        finally:  # after all fixtures
            if nextitem is None or nextitem.path.parent != item.path.parent:
                self._kept.close()
                self._is_keeping = False


FOLDER_CONNECTIONS: Final = FolderConnections()


async def migrate_unless_pooled(url: str, *, beside_nodes: bool = False) -> None:
    """A `migrate_database` that looks into no database of the pool: these have all tables."""
    if not database_pool().has_tables(url):
        await migrate_database(url, beside_nodes=beside_nodes)
