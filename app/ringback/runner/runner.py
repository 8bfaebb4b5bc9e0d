"""The runner: leases queued calls, as many as each upstream takes, and drives each to its end."""

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass

from ringback.admission import AdmissionGate
from ringback.domain.call import Call
from ringback.domain.clock import Clock, seconds
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ids import CallId, Ids
from ringback.domain.ports import Store, Transaction
from ringback.domain.signals import QUEUED
from ringback.notifier.ends import Ends
from ringback.notifier.record import Recorder
from ringback.runner.drive import Drive, Halt, Sessions
from ringback.runner.leasing import Leasing
from ringback.runner.live import LiveHub
from ringback.services.births import Births
from ringback.waits import first_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerConfig:
    owner: str
    """Names this process in leases."""
    lease_seconds: float = 30.0
    heartbeat_seconds: float = 10.0
    margin_seconds: float = 5.0
    """How long before its end a lease is no longer trusted: for clocks that run apart, and for stopping what runs."""
    poll_seconds: float = 5.0
    """How long a missed ring can cost."""
    drain_seconds: float = 10.0
    """How long calls in flight may go on after the runner was told to stop."""

    def __post_init__(self) -> None:
        if self.trust_seconds < 2 * self.heartbeat_seconds:
            raise ValueError(
                "lease_seconds must be at least twice heartbeat_seconds and the margin, so that a heartbeat may be missed"
            )

    @property
    def trust_seconds(self) -> float:
        """How long a holder may count on a lease, from the moment before it asked for it."""
        return self.lease_seconds - self.margin_seconds


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
        live: LiveHub,
        births: Births,
        admission: AdmissionGate,
        config: RunnerConfig,
    ) -> None:
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._ends = Ends(store=store, recorder=recorder)
        self._sessions = sessions
        self._live = live
        self._births = births
        self._admission = admission
        self._config = config
        self._drives: dict[CallId, Drive] = {}
        self._start: Callable[[Call, float], None] | None = None
        """Begins a drive; None before and after a run."""
        self._ended = asyncio.Event()
        """Set whenever a drive has ended."""
        self._leasing = Leasing(
            ids=ids,
            clock=clock,
            owner=config.owner,
            lease_seconds=config.lease_seconds,
            trust_seconds=config.trust_seconds,
            capacity=sessions.capacity,
            begin=self._begin,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Run calls until told to stop; then let those in flight end, and cut off what has not by then."""
        halt = Halt()
        async with asyncio.TaskGroup() as group:
            keeping = [group.create_task(self._heartbeats()), group.create_task(self._distrust())]
            async with asyncio.TaskGroup() as drives:
                with self._starting(drives, halt):
                    await self._lease_until(stop)
                    halt.stopping.set()
                    await self._drain(halt)
            for task in keeping:
                task.cancel()
        await self._ends.drain()

    @contextmanager
    def _starting(self, drives: asyncio.TaskGroup, halt: Halt) -> Generator[None]:
        context = copy_context()  # a drive begins where its lease was committed, and inherits nothing of who did that

        def start(call: Call, trusted_until: float) -> None:
            work = self._drive(call, trusted_until, halt)
            try:
                drive = drives.create_task(work, context=context.copy())
            except RuntimeError:  # a bug of ours ends all drives; this one's lease runs out
                work.close()
                self._leasing.leave(call.upstream)
                return
            drive.add_done_callback(lambda _: self._leasing.leave(call.upstream))  # also if it is cancelled unbegun

        self._start = start
        try:
            yield
        finally:
            self._start = None

    async def _lease_until(self, stop: asyncio.Event) -> None:
        """What is queued in units of others is leased right there; all the rest, and what found no room, here."""
        with self._store.signals.listen(QUEUED) as bell, self._births.open(self._leasing.prepare):
            while not stop.is_set():
                self._leasing.room.clear()
                if upstreams := self._leasing.with_room():
                    await self._lease_or_nothing(upstreams)
                await first_of(bell.wait(self._config.poll_seconds), self._leasing.room.wait(), stop.wait())

    async def _drain(self, halt: Halt) -> None:
        ends_at = self._clock.monotonic() + self._config.drain_seconds
        while self._drives and (left := ends_at - self._clock.monotonic()) > 0:
            self._ended.clear()
            await first_of(self._ended.wait(), self._clock.sleep(left))
        halt.cut.set()

    def _begin(self, call: Call, trusted_until: float) -> None:
        if (
            self._start is None
        ):  # committed while the runner stopped: the lease runs out, or is voided at the next start
            self._leasing.leave(call.upstream)
        else:
            self._start(call, trusted_until)

    async def _drive(self, call: Call, trusted_until: float, halt: Halt) -> None:
        drive = Drive(
            call,
            trusted_until=trusted_until,
            store=self._store,
            clock=self._clock,
            recorder=self._recorder,
            ends=self._ends,
            sessions=self._sessions,
            halt=halt,
            live=self._live,
        )
        if (older := self._drives.get(call.id)) is not None:
            older.lose()  # it waits for a store that was away for longer than its lease
        self._drives[call.id] = drive
        try:
            await self._admission.pass_background()
            await drive.run()
        except Exception:  # the boundary between one call and the others: the lease runs out, the janitor ends it
            log.exception("call.abandoned", extra={"call_id": call.id})
        finally:
            if self._drives.get(call.id) is drive:
                del self._drives[call.id]
            self._ended.set()

    # -- leases --

    async def _lease_or_nothing(self, upstreams: Sequence[str]) -> None:
        lease = self._leasing.prepare()

        async def lease_all(tx: Transaction) -> list[Call]:
            return [call for upstream in upstreams for call in await lease(tx, upstream)]

        try:
            await self._store.write(lease_all)
        except StoreUnavailable:
            log.warning("calls.lease_failed")

    async def _heartbeats(self) -> None:
        while True:
            await self._clock.sleep(self._config.heartbeat_seconds)
            if self._drives:
                await self._heartbeat()

    async def _heartbeat(self) -> None:
        """Prolong the leases of what is driven here; a drive whose lease is gone stops its own work."""
        driven, trusted_until = set(self._drives), self._trusted_until()

        async def extend(tx: Transaction) -> set[CallId]:
            until = tx.now() + seconds(self._config.lease_seconds)
            return set(await tx.call_queue.extend(self._config.owner, driven, until=until))

        try:
            held = await self._store.write(extend)
        except StoreUnavailable:
            log.warning("leases.not_extended")
            return
        for call_id in driven:
            if drive := self._drives.get(call_id):
                if call_id in held:
                    drive.trusted_until = trusted_until
                else:
                    drive.lose()

    async def _distrust(self) -> None:
        """Stop the drives whose lease was not prolonged in time, also while the store takes for ever to say so."""
        while True:
            now = self._clock.monotonic()
            for drive in list(self._drives.values()):
                if drive.trusted_until <= now:
                    drive.lose()
            trusted = [drive.trusted_until for drive in self._drives.values() if drive.trusted_until > now]
            await self._clock.sleep(min(trusted) - now if trusted else self._config.heartbeat_seconds)

    def _trusted_until(self) -> float:
        """For leases that are asked for now. The store counts from later, when its transaction begins."""
        return self._clock.monotonic() + self._config.trust_seconds
