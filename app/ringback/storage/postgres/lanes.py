"""Lanes: units of work of one kind, and the connections that run them.

    write(work) ─▶ queue ─▶ worker ── connection ──▶ BEGIN … COMMIT      as many workers as the lane has connections
                         ─▶ worker ── connection ──▶ BEGIN … COMMIT

A worker takes the next unit as soon as its connection is free, and ends when none may run. A unit that has begun runs to its
end also if its caller is cancelled; one that waits is dropped then. If no connection can be had and no unit runs, every
waiting unit fails: a caller learns within some seconds that the database is down (`node_connections`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from ringback.admission import leave_admission_context
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.log_context import leave_log_context
from ringback.storage.postgres.driver import Connection
from ringback.storage.postgres.errors import to_store_unavailable
from ringback.storage.postgres.node_connections import NodeConnections
from ringback.storage.units import UnitOfWork

log = logging.getLogger(__name__)

T = TypeVar("T")


class UnitQueue(Protocol):
    def add_unit(self, unit: UnitOfWork) -> None: ...

    def pop_unit(self) -> UnitOfWork | None:
        """The next unit that may run now. `release` follows when it has ended."""
        ...

    def release(self, unit: UnitOfWork) -> None: ...


class Lane:
    """Belongs to one event loop."""

    def __init__(
        self,
        queue: UnitQueue,
        *,
        connections_max: int,
        connections: NodeConnections,
        run_unit: Callable[[Connection, UnitOfWork], Awaitable[None]],
    ) -> None:
        self._queue = queue
        self._connections_max = connections_max
        self._connections = connections
        self._run_unit = run_unit
        self._workers: set[asyncio.Task[None]] = set()
        self._running = 0
        """Workers that run a unit. Each takes the next one afterwards."""
        self._is_waiting = False
        """Whether a worker waits for a connection that another lane uses."""
        self._closed = False

    async def run(self, work: Callable[[Transaction], Awaitable[T]], principal: Principal | None = None) -> T:
        """The value of `work`, or its error."""
        if self._closed:
            raise StoreUnavailable("The database is not open.")
        unit = UnitOfWork(work, asyncio.get_running_loop().create_future(), principal)
        self._queue.add_unit(unit)
        if len(self._workers) < self._connections_max:
            worker = asyncio.create_task(self._run_worker(), name="postgres-lane")
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        try:
            return await unit.done
        finally:
            unit.done.cancel()  # a caller that is cancelled before its turn removes its unit

    async def close(self) -> None:
        """Finish all waiting units."""
        self._closed = True
        while self._workers:
            await asyncio.wait(self._workers)

    async def _run_worker(self) -> None:
        leave_log_context()
        leave_admission_context()  # the worker runs units of all callers, and end actions start tasks in its context
        try:
            await self._run_waiting_units()
        finally:
            # Not only in a callback of the task: the last unit's caller runs before that, and its next unit needs a worker.
            if (worker := asyncio.current_task()) is not None:
                self._workers.discard(worker)

    async def _run_waiting_units(self) -> None:
        """Awaits nothing after the last unit: a caller that puts a unit later finds one worker less."""
        connection: Connection | None = None
        while (unit := self._pop_unit()) is not None:
            try:
                connection = await self._acquire(connection)
            except Exception as error:  # noqa: BLE001 - boundary: every caller gets an answer
                self._give_up_connecting(unit, to_store_unavailable(error))
                return
            await self._run(connection, unit)
            self._queue.release(unit)
            if self._connections.is_awaited:
                self._connections.give_back(connection)
                connection = None
        if connection is not None:
            self._connections.give_back(connection)

    async def _run(self, connection: Connection, unit: UnitOfWork) -> None:
        self._running += 1
        try:
            await self._run_unit(connection, unit)
        except Exception:  # boundary: a bug in what one unit notifies must not end the worker
            log.exception("store.unit_not_concluded")
        finally:
            self._running -= 1

    def _pop_unit(self) -> UnitOfWork | None:
        while (unit := self._queue.pop_unit()) is not None:
            if not unit.done.done():
                return unit
            self._queue.release(unit)
        return None

    async def _acquire(self, connection: Connection | None) -> Connection:
        """This connection if it is open, or another. One worker at most waits for a connection of other lanes."""
        if connection is not None and not connection.is_closed():
            return connection
        if connection is not None:
            self._connections.give_back(connection)
        try:
            return await self._connections.acquire()
        except Exception:
            if self._running or self._is_waiting or (returned := await self._wait_for_other_lanes()) is None:
                raise
            return returned

    async def _wait_for_other_lanes(self) -> Connection | None:
        self._is_waiting = True
        try:
            return await self._connections.wait_for_returned()
        finally:
            self._is_waiting = False

    def _give_up_connecting(self, unit: UnitOfWork | None, error: StoreUnavailable) -> None:
        """Leave the units to the workers that have a connection or wait for one; if there is none, the units fail."""
        if (self._running or self._is_waiting) and unit is not None:
            self._queue.release(unit)
            self._queue.add_unit(unit)
            return
        while unit is not None:
            self._queue.release(unit)
            unit.error = StoreUnavailable(error.detail, needs_operator=error.needs_operator)
            unit.resolve()
            unit = self._pop_unit()
