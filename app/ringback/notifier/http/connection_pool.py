"""The open connections, and the idle ones among them by origin.

The most recently used connection is used next. The others expire, so a burst does not leave its connections open.
"""

import asyncio
import socket
from typing import Final

from ringback.notifier.concurrency_limiter import ConcurrencyLimits
from ringback.notifier.http.connection import ReceiverConnection

KEEPALIVE_SECONDS: Final = 4.0
"""Below the 5 s after which uvicorn and Node, the most common receivers, close an idle connection."""
SWEEP_SECONDS: Final = 1.0
"""An expired connection closes within this time: one timer serves all connections."""
IDLE_CONNECTIONS_PER_ORIGIN_MAX: Final = ConcurrencyLimits().per_origin_max
"""No more attempts to one origin can have been in flight."""
IDLE_CONNECTIONS_MAX: Final = ConcurrencyLimits().in_flight_max
"""Sockets of idle connections: as many as those of attempts in flight."""


class ConnectionPool:
    def __init__(self) -> None:
        self._open: set[ReceiverConnection] = set()
        self._idle: dict[str, list[ReceiverConnection]] = {}
        self._idle_count = 0
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    def create_connection(self, origin: str, connected: socket.socket) -> ReceiverConnection:
        return ReceiverConnection(origin, connected, on_closed=self._remove_connection)

    def require_open(self) -> None:
        """Raise ConnectionAbortedError if the pool is closed."""
        if self._is_closed:
            raise ConnectionAbortedError("the sender is closed")

    def register_connection(self, connection: ReceiverConnection) -> None:
        """Make the pool responsible for closing the connection. Raises ConnectionAbortedError if the pool is closed.

        Connections are registered only once they are established: uvloop reports no end of a connection whose creation was
        cancelled.
        """
        if self._is_closed:
            connection.abort()
        self.require_open()
        if not connection.closed.done():
            self._open.add(connection)

    def acquire_connection(self, origin: str) -> ReceiverConnection | None:
        """An idle connection that can carry the next request, if there is one."""
        fresh_after = asyncio.get_running_loop().time() - KEEPALIVE_SECONDS
        stack = self._idle.get(origin)
        while stack:
            connection = stack.pop()
            self._idle_count -= 1
            if connection.idle_since > fresh_after and connection.is_quiet():
                return connection
            connection.abort()
        return None

    def release_connection(self, connection: ReceiverConnection) -> None:
        """After an exchange, keep the connection if it is reusable and there is room; otherwise close it."""
        has_room = (
            self._idle_count < IDLE_CONNECTIONS_MAX
            and len(self._idle.get(connection.origin, ())) < IDLE_CONNECTIONS_PER_ORIGIN_MAX
        )
        if self._is_closed or not has_room or not connection.is_reusable:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(connection.origin, []).append(connection)
        self._idle_count += 1
        if self._sweep is None:
            self._sweep = loop.call_later(SWEEP_SECONDS, self._close_expired)

    async def aclose(self) -> None:
        """Close every connection, those in use included, and wait until they are closed."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        closing = [connection.closed for connection in self._open]
        for connection in self._open:
            connection.abort()
        if closing:
            await asyncio.wait(closing)

    def _close_expired(self) -> None:
        loop = asyncio.get_running_loop()
        fresh_after = loop.time() - KEEPALIVE_SECONDS
        for origin, stack in list(self._idle.items()):
            while stack and stack[0].idle_since <= fresh_after:
                stack.pop(0).abort()
                self._idle_count -= 1
            if not stack:
                del self._idle[origin]
        self._sweep = loop.call_later(SWEEP_SECONDS, self._close_expired) if self._idle else None

    def _remove_connection(self, connection: ReceiverConnection) -> None:
        """Called when a connection is closed, by this side or by its receiver."""
        self._open.discard(connection)
        stack = self._idle.get(connection.origin, [])
        if connection in stack:
            stack.remove(connection)
            self._idle_count -= 1
