"""Connections that are open, and those of them that wait for the next request to their origin.

The one that was used last is used next: the others grow old and are closed, and a burst does not leave its connections open.
"""

import asyncio
import socket
from typing import Final

from ringback.notifier.http1_connection import Connection
from ringback.notifier.lanes import LaneLimits

KEEPALIVE_SECONDS: Final = 4.0
"""Below the 5 s after which uvicorn and Node, the commonest receivers, close an idle connection."""
SWEEP_SECONDS: Final = 1.0
"""How long a connection may outlive its time: one timer for all of them instead of one for each."""
IDLE_PER_ORIGIN_MAX: Final = LaneLimits().per_origin_max
"""No more can have been in use at once."""
IDLE_MAX: Final = LaneLimits().in_flight_max
"""Sockets that idle connections may hold: as many again as the attempts in flight."""


class ConnectionPool:
    def __init__(self) -> None:
        self._open: set[Connection] = set()
        self._idle: dict[str, list[Connection]] = {}
        self._idle_count = 0
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    def new(self, origin: str, connected: socket.socket) -> Connection:
        return Connection(origin, connected, lost=self._forget)

    def check_open(self) -> None:
        """Raise ConnectionAbortedError once the pool is closed: nothing is dialed or sent any more."""
        if self._closed:
            raise ConnectionAbortedError("the sender is closed")

    def opened(self, connection: Connection) -> None:
        """From here on the connection is the pool's to close. Raises ConnectionAbortedError when that comes too late.

        Not before: uvloop never tells of the end of a connection that was cancelled while it was being made.
        """
        if self._closed:
            connection.abort()
        self.check_open()
        if not connection.closed.done():
            self._open.add(connection)

    def take(self, origin: str) -> Connection | None:
        """A connection that is fit for the next request, if there is one."""
        fresh_after = asyncio.get_running_loop().time() - KEEPALIVE_SECONDS
        stack = self._idle.get(origin)
        while stack:
            connection = stack.pop()
            self._idle_count -= 1
            if connection.idle_since > fresh_after and connection.is_quiet():
                return connection
            connection.abort()
        return None

    def give_back(self, connection: Connection) -> None:
        """After an exchange: keep the connection if it can be used again and there is room, or close it."""
        room = self._idle_count < IDLE_MAX and len(self._idle.get(connection.origin, ())) < IDLE_PER_ORIGIN_MAX
        if self._closed or not room or not connection.is_reusable:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(connection.origin, []).append(connection)
        self._idle_count += 1
        if self._sweep is None:
            self._sweep = loop.call_later(SWEEP_SECONDS, self._close_old)

    async def aclose(self) -> None:
        """Close every connection, also those in use; returns when they are closed."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        closing = [connection.closed for connection in self._open]
        for connection in self._open:
            connection.abort()
        if closing:
            await asyncio.wait(closing)

    def _close_old(self) -> None:
        loop = asyncio.get_running_loop()
        fresh_after = loop.time() - KEEPALIVE_SECONDS
        for origin, stack in list(self._idle.items()):
            while stack and stack[0].idle_since <= fresh_after:
                stack.pop(0).abort()
                self._idle_count -= 1
            if not stack:
                del self._idle[origin]
        self._sweep = loop.call_later(SWEEP_SECONDS, self._close_old) if self._idle else None

    def _forget(self, connection: Connection) -> None:
        """A connection is closed: by us, or by its receiver while it was idle."""
        self._open.discard(connection)
        stack = self._idle.get(connection.origin, [])
        if connection in stack:
            stack.remove(connection)
            self._idle_count -= 1
