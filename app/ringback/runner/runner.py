"""The runner: leases queued calls, as many as each upstream takes, and drives each to its end."""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass

from ringback.domain.call import Call
from ringback.domain.clock import Clock, seconds
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ids import CallId, Ids
from ringback.domain.ports import QUEUED, Store, Transaction
from ringback.notifier.record import Recorder
from ringback.runner.drive import Drive, Halt, Sessions
from ringback.waits import first_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerConfig:
    owner: str
    """Names this process in leases."""
    lease_seconds: float = 30.0
    heartbeat_seconds: float = 10.0
    poll_seconds: float = 5.0
    """How long a missed ring can cost."""
    drain_seconds: float = 10.0
    """How long calls in flight may go on after the runner was told to stop."""

    def __post_init__(self) -> None:
        if self.lease_seconds < 2 * self.heartbeat_seconds:
            raise ValueError("lease_seconds must be at least twice heartbeat_seconds, so that one may be missed")


class Runner:
    name = "runner"

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: Ids,
        recorder: Recorder,
        sessions: Sessions,
        config: RunnerConfig,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._recorder = recorder
        self._sessions = sessions
        self._config = config
        self._drives: dict[CallId, Drive] = {}
        self._room = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Run calls until told to stop; then let those in flight end, and cut off what has not by then."""
        halt = Halt(stopping=stop, cut=asyncio.Event())
        async with asyncio.TaskGroup() as group:
            heartbeat = group.create_task(self._heartbeats())
            async with asyncio.TaskGroup() as drives:
                await self._lease_until(stop, drives, halt)
                await self._drain(halt)
            heartbeat.cancel()

    async def _lease_until(self, stop: asyncio.Event, drives: asyncio.TaskGroup, halt: Halt) -> None:
        with self._store.signals.listen(QUEUED) as bell:
            while not stop.is_set():
                self._room.clear()
                leased = await self._lease_or_nothing()
                for call in leased:
                    drives.create_task(self._drive(call, halt))
                if not leased:
                    await first_of(bell.wait(self._config.poll_seconds), self._room.wait(), stop.wait())

    async def _drain(self, halt: Halt) -> None:
        ends_at = self._clock.monotonic() + self._config.drain_seconds
        while self._drives and (left := ends_at - self._clock.monotonic()) > 0:
            self._room.clear()
            await first_of(self._room.wait(), self._clock.sleep(left))
        halt.cut.set()

    async def _drive(self, call: Call, halt: Halt) -> None:
        drive = Drive(
            call,
            store=self._store,
            clock=self._clock,
            recorder=self._recorder,
            sessions=self._sessions,
            halt=halt,
        )
        self._drives[call.id] = drive
        try:
            await drive.run()
        except (
            Exception
        ):  # the boundary between one call and the others: this one's lease runs out, the janitor ends it
            log.exception("call.abandoned", extra={"call_id": call.id})
        finally:
            del self._drives[call.id]
            self._room.set()

    # -- leases --

    async def _lease_or_nothing(self) -> list[Call]:
        try:
            return await self._store.write(self._lease)
        except StoreUnavailable:
            log.warning("calls.lease_failed")
            return []

    async def _lease(self, tx: Transaction) -> list[Call]:
        running = Counter(drive.call.upstream for drive in self._drives.values())
        leased: list[Call] = []
        for upstream, capacity in self._sessions.capacity().items():
            if (free := capacity - running[upstream]) > 0:
                leased += await tx.call_queue.lease(
                    upstream,
                    owner=self._config.owner,
                    token=self._ids.lease(),
                    until=tx.now() + seconds(self._config.lease_seconds),
                    limit=free,
                )
        return leased

    async def _heartbeats(self) -> None:
        while True:
            await self._clock.sleep(self._config.heartbeat_seconds)
            if self._drives:
                await self._heartbeat()

    async def _heartbeat(self) -> None:
        """Prolong the leases of what is driven here; a drive whose lease is gone stops its own work."""
        driven = set(self._drives)

        async def extend(tx: Transaction) -> set[CallId]:
            until = tx.now() + seconds(self._config.lease_seconds)
            return set(await tx.call_queue.extend(self._config.owner, driven, until=until))

        try:
            held = await self._store.write(extend)
        except StoreUnavailable:
            log.warning("leases.not_extended")
            return
        for call_id in driven - held:
            if drive := self._drives.get(call_id):
                drive.lose()
