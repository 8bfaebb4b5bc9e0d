"""Connections that are open, and those of them that wait for the next request to their origin.

The one that was used last is used next: the others grow old and are closed, and a burst does not leave its connections open.
"""

import asyncio
import socket
from typing import Final

from ringback.notifier.concurrency_limiter import ConcurrencyLimits
from ringback.notifier.http.connection import ReceiverConnection

KEEPALIVE_SECONDS: Final = 4.0
"""Below the 5 s after which uvicorn and Node, the commonest receivers, close an idle connection."""
SWEEP_SECONDS: Final = 1.0
"""How long a connection may outlive its time: one timer for all of them instead of one for each."""
IDLE_CONNECTIONS_PER_ORIGIN_MAX: Final = ConcurrencyLimits().per_origin_max
"""No more can have been in use at once."""
IDLE_CONNECTIONS_MAX: Final = ConcurrencyLimits().in_flight_max
"""Sockets that idle connections may hold: as many again as the attempts in flight."""


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
        """Raise ConnectionAbortedError once the pool is closed: nothing is dialed or sent any more."""
        if self._is_closed:
            raise ConnectionAbortedError("the sender is closed")

    def register_connection(self, connection: ReceiverConnection) -> None:
        """From here on the connection is the pool's to close. Raises ConnectionAbortedError when that comes too late.

        Not before: uvloop never tells of the end of a connection that was cancelled while it was being made.
        """
        if self._is_closed:
            connection.abort()
        self.require_open()
        if not connection.closed.done():
            self._open.add(connection)

    def acquire_connection(self, origin: str) -> ReceiverConnection | None:
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

    def release_connection(self, connection: ReceiverConnection) -> None:
        """After an exchange: keep the connection if it can be used again and there is room, or close it."""
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
        """Close every connection, also those in use; returns when they are closed."""
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
        """A connection is closed: by us, or by its receiver while it was idle."""
        self._open.discard(connection)
        stack = self._idle.get(connection.origin, [])
        if connection in stack:
            stack.remove(connection)
            self._idle_count -= 1
