"""The connections of one node, which all its lanes share.

    acquire ─▶ an idle one ─▶ a new one, or the next one that is given back, whichever comes first
                                  ╰── refused ─▶ wait_for_returned ─▶ the next one that another lane gives back

Each lane limits how many it uses at once, so together they open no more than the sum. A full server refuses more, and a full
pooler lets more wait. If lanes did not share, those that list and read could keep all connections that this node may have,
idle, while the lane that writes gets none. If a lane waited for a new one alone, a full pooler would delay the extension of
leases.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from ringback.asyncio_tasks import end_tasks
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
        """Lanes that take the next connection."""
        self._openers: deque[asyncio.Future[Connection]] = deque()
        """Those of them that also wait for a new one, and get the error if it is refused."""
        self._openings: set[asyncio.Future[Connection]] = set()
        """At most as many as openers when each began, and as many as openers at least."""

    @property
    def is_awaited(self) -> bool:
        """Whether a lane waits for the next connection that is given back."""
        return bool(self._waiting)

    async def acquire(self) -> Connection:
        """A connection, which the caller gives back. Raises what opening one raises."""
        if (idle := self._take_idle()) is not None:
            return idle
        awaited = self._await_next()
        self._openers.append(awaited)
        self._open_for_all()
        try:
            await asyncio.wait([awaited])
        except asyncio.CancelledError:
            self._give_back_unused(awaited)
            raise
        finally:
            self._forget(awaited)
        if awaited.exception() is not None and (returned := self._take_idle()) is not None:
            return returned  # since the refusal
        return awaited.result()

    async def wait_for_returned(self) -> Connection | None:
        """The next connection that another lane gives back; None if there is none in time."""
        if not self._in_use:
            return None
        returned = self._await_next()
        try:
            await asyncio.wait([returned], timeout=RETURN_TIMEOUT_SECONDS)
        except asyncio.CancelledError:
            self._give_back_unused(returned)
            raise
        finally:
            self._forget(returned)
        return returned.result() if returned.done() else None

    def give_back(self, connection: Connection) -> None:
        """Return a connection, also one that is closed. An open one goes to the lane that has waited longest."""
        self._in_use -= 1
        if not connection.is_closed():
            self._hand_over(connection)

    def drop_idle(self) -> None:
        """Close the idle connections without a word to the server: a unit of work got no answer on another one.

        The network may have dropped them all, as a router does that loses its state. Each would cost a unit the same timeout,
        and the one lane for heartbeats would try one after the other until the leases have run out.
        """
        while self._idle:
            self._idle.pop().terminate()

    async def close_one(self) -> None:
        """Close a connection that is idle or given back soon, if there is one, so that the server has room for another."""
        connection = self._take_idle() or await self.wait_for_returned()
        if connection is not None:
            await close_connection(connection)
            self.give_back(connection)

    async def close(self) -> None:
        """Close the idle connections. All are idle once the lanes are closed, or not open yet."""
        await end_tasks(list(self._openings))
        while self._idle:
            await close_connection(self._idle.pop())

    def _await_next(self) -> "asyncio.Future[Connection]":
        awaited: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._waiting.append(awaited)
        return awaited

    def _forget(self, awaited: "asyncio.Future[Connection]") -> None:
        for waiting in (self._waiting, self._openers):
            if awaited in waiting:
                waiting.remove(awaited)

    def _give_back_unused(self, awaited: "asyncio.Future[Connection]") -> None:
        if awaited.done() and awaited.exception() is None:
            self.give_back(awaited.result())

    def _hand_over(self, connection: Connection) -> None:
        """To the lane that has waited longest; the connection is idle if none waits."""
        if not self._waiting:
            self._idle.append(connection)
            return
        awaited = self._waiting[0]
        self._forget(awaited)
        self._in_use += 1
        awaited.set_result(connection)

    def _open_for_all(self) -> None:
        while len(self._openings) < len(self._openers):
            opening = asyncio.ensure_future(self._open_connection())
            self._openings.add(opening)
            opening.add_done_callback(self._end_opening)

    def _end_opening(self, opening: "asyncio.Future[Connection]") -> None:
        self._openings.discard(opening)
        if opening.cancelled():
            return
        if (error := opening.exception()) is None:
            self._hand_over(opening.result())
        elif self._openers:
            awaited = self._openers[0]
            self._forget(awaited)
            awaited.set_exception(error)
        self._open_for_all()  # a lane that waits for a returned one only may have got this one

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                self._in_use += 1
                return connection
        return None


async def close_connection(connection: Connection) -> None:
    with suppress(Exception):
        await connection.close(timeout=CLOSE_TIMEOUT_SECONDS)
