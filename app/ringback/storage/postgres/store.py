"""The store: a database, the lanes of its units of work, and notifications from and to the other nodes."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from ringback.domain.clock import Clock
from ringback.domain.encryption import Sealer
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.storage.postgres.availability import Availability
from ringback.storage.postgres.driver import Connection, connect_for_units
from ringback.storage.postgres.errors import to_store_unavailable
from ringback.storage.postgres.lanes import Lane
from ringback.storage.postgres.migrator import migrate_database
from ringback.storage.postgres.node_connections import NodeConnections
from ringback.storage.postgres.notifications import NodeNotifications
from ringback.storage.postgres.shared_clock import follow_database_clock
from ringback.storage.postgres.unit_of_work import UnitRunner
from ringback.storage.signals import LocalSignals
from ringback.storage.unit_queues import PrincipalQueue, WritingQueue

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Connections of one node. PostgreSQL's default is 100 for all nodes together."""

    writing: int = 8
    """More gain nothing on a disk that flushes for all of them at once. One principal uses half of them (`WritingQueue`)."""
    heartbeats: int = 1
    """Extensions of leases, which never wait for a row that another unit has locked."""
    reading: int = 4
    scanning: int = 3
    """Lists and counts, which may take milliseconds."""


LIMITS: Final = ConnectionLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lanes:
    writing: Lane
    heartbeats: Lane
    reading: Lane
    scanning: Lane


class PostgresStore:
    """Implements `domain.ports.Store`. Open it, and close it, on the event loop that uses it."""

    def __init__(self, url: str, *, clock: Clock, sealer: Sealer) -> None:
        self._url = url
        self._clock = clock
        self._signals = LocalSignals()
        self._connections = NodeConnections(self._connect)
        self._notifications = NodeNotifications(
            url,
            clock=clock,
            signals=self._signals,
            on_check=partial(follow_database_clock, clock),
            close_other_connection=self._connections.close_one,
        )
        self._runner = UnitRunner(
            clock=clock,
            sealer=sealer,
            notify=self._notifications.publish,
            on_silence=self._connections.drop_idle,
            random_fraction=random.SystemRandom().random,
        )
        self._availability = Availability(clock)
        self._lanes: _Lanes | None = None

    @property
    def signals(self) -> LocalSignals:
        return self._signals

    @property
    def is_exclusive(self) -> bool:
        """Other nodes may be alive, so their leases are void only when they run out."""
        return False

    async def open(self, *, beside_nodes: bool = False) -> None:
        """Migrate the database and get ready. Raises `StoreUnavailable`.

        A command opens it `beside_nodes`, and applies no migration that would stop nodes of an earlier version.
        """
        try:
            await migrate_database(self._url, beside_nodes=beside_nodes)
            await self._open_notifications()
        except Exception as error:
            raise to_store_unavailable(error) from error
        run_reading, connections = self._runner.run_reading, self._connections
        self._lanes = _Lanes(
            writing=Lane(
                WritingQueue(connections=LIMITS.writing),
                connections_max=LIMITS.writing,
                connections=connections,
                run_unit=self._runner.run_writing,
            ),
            heartbeats=Lane(
                PrincipalQueue(),
                connections_max=LIMITS.heartbeats,
                connections=connections,
                run_unit=self._runner.run_writing,
            ),
            reading=Lane(
                PrincipalQueue(),
                connections_max=LIMITS.reading,
                connections=connections,
                run_unit=run_reading,
            ),
            scanning=Lane(
                PrincipalQueue(),
                connections_max=LIMITS.scanning,
                connections=connections,
                run_unit=run_reading,
            ),
        )

    async def _open_notifications(self) -> None:
        other = await self._connections.acquire()
        try:
            await self._notifications.open(other)
        except BaseException:
            other.terminate()
            raise
        finally:
            self._connections.give_back(other)

    async def close(self) -> None:
        """Finish the units that wait, and close the connections. Later units of work get `StoreUnavailable`."""
        if self._lanes is not None:
            lanes, self._lanes = self._lanes, None
            for lane in (lanes.scanning, lanes.reading, lanes.writing, lanes.heartbeats):
                await lane.close()
            await self._connections.close()
            await self._notifications.close()

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._availability.observe(self._require_open().writing.run(work), writes=True)

    async def write_for(self, principal: Principal, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._availability.observe(self._require_open().writing.run(work, principal), writes=True)

    async def write_heartbeat(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._availability.observe(self._require_open().heartbeats.run(work), writes=True)

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run `work` on one snapshot. Its notifications are dropped."""
        return await self._availability.observe(self._require_open().reading.run(work), writes=False)

    async def scan(self, principal: Principal | None, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """The same on connections of their own, so that lists do not delay reads of single rows."""
        return await self._availability.observe(self._require_open().scanning.run(work, principal), writes=False)

    async def _connect(self) -> Connection:
        try:
            return await connect_for_units(self._url)
        except Exception as error:
            raise to_store_unavailable(error) from error

    def _require_open(self) -> _Lanes:
        if self._lanes is None:
            raise StoreUnavailable("The database is not open.")
        return self._lanes
