"""The connections of one node, which all its lanes share.

    acquire ─▶ an idle one ─▶ a new one ── refused ─▶ wait_for_returned ─▶ the next one that another lane gives back

Each lane limits how many it uses at once, so together they open no more than the sum. A full server refuses more. If
they did not share, the lanes that list and read could keep all connections that the server allows this node, idle, while the
lane that writes gets none.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from ringback.storage.postgres.driver import Connection

CLOSE_TIMEOUT_SECONDS: Final = 2.0
"""How long the close of one connection may take."""
RETURN_TIMEOUT_SECONDS: Final = 5.0
"""How long a lane waits for a connection of another. A unit of work takes milliseconds."""


class NodeConnections:
    """Used on one event loop only."""

    def __init__(self, open_connection: Callable[[], Awaitable[Connection]]) -> None:
        self._open_connection = open_connection
        self._idle: list[Connection] = []
        self._in_use = 0
        self._waiting: deque[asyncio.Future[Connection]] = deque()

    @property
    def is_awaited(self) -> bool:
        """Whether a lane waits for the next connection that is given back."""
        return bool(self._waiting)

    async def acquire(self) -> Connection:
        """An idle connection or a new one, which the caller gives back. Raises what opening one raises."""
        connection = self._pop_idle()
        if connection is None:
            connection = await self._open()
        self._in_use += 1
        return connection

    async def wait_for_returned(self) -> Connection | None:
        """The next connection that another lane gives back; None if there is none in time."""
        if not self._in_use:
            return None
        returned: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._waiting.append(returned)
        try:
            await asyncio.wait([returned], timeout=RETURN_TIMEOUT_SECONDS)
        except asyncio.CancelledError:
            if returned.done():
                self.give_back(returned.result())
            raise
        finally:
            if not returned.done():
                self._waiting.remove(returned)
        return returned.result() if returned.done() else None

    def give_back(self, connection: Connection) -> None:
        """Return a connection, also one that is closed. An open one goes to the lane that has waited longest."""
        if not connection.is_closed() and self._waiting:
            self._waiting.popleft().set_result(connection)
            return
        self._in_use -= 1
        if not connection.is_closed():
            self._idle.append(connection)

    async def close(self) -> None:
        """Close the idle connections. All are idle once the lanes are closed."""
        while self._idle:
            await close_connection(self._idle.pop())

    async def _open(self) -> Connection:
        try:
            return await self._open_connection()
        except Exception:
            connection = self._pop_idle()  # another worker may have given one back meanwhile
            if connection is None:
                raise
            return connection

    def _pop_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None


async def close_connection(connection: Connection) -> None:
    with suppress(Exception):
        await connection.close(timeout=CLOSE_TIMEOUT_SECONDS)
