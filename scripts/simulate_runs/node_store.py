"""A node's connection to the shared database, with the faults of the network between the two.

    NodeStore.write ──latency──▶ begin, the unit, commit ──latency──▶ value, end actions, notifications
                           │ may be refused │ may run again   │ the response may be lost
                           └──────── whatever the node does meanwhile, and its death, falls between ────────┘

The two latencies are timers of the node's process. If the node is killed before the first one ends, nothing was written; before
the second one ends, the unit is committed and the node never learns it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar, cast

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.storage.signals import LocalSignals
from ringback.storage.units import UnitOfWork, complete_units
from scripts.simulate_runs.clock import NodeClock
from scripts.simulate_runs.database import LeaseEnd, NodeConnection, SharedDatabase
from scripts.simulate_runs.loop import SimulationLoop
from scripts.simulate_runs.steps import STEP_SECONDS_MAX, SteppedUnit

T = TypeVar("T")
Work = Callable[[Transaction], Awaitable[T]]

RUNS_MAX: Final = 6
"""Runs of one unit after serialization failures, as in the PostgreSQL store."""
ABORTED: Final = "The simulated database has rolled back a unit whose node did not go on."
REFUSED: Final = "The simulated database cannot be reached."
RESPONSE_LOST: Final = "The response of the simulated database was lost."


@dataclass(slots=True, kw_only=True)
class StoreFaults:
    """What happens to the units of one node at present. Fractions are between 0 and 1."""

    is_away: bool = False
    """Every unit is refused with `StoreUnavailable`."""
    lost_responses: float = 0.0
    """The fraction of units that are committed while the node gets `StoreUnavailable`."""
    reruns: float = 0.0
    """The fraction of units that are rolled back and run again."""
    pauses: float = 0.0
    """The fraction of units that pause around their statements."""
    lost_notifications: float = 0.0
    """The fraction of notifications of other nodes that do not arrive."""
    is_deaf: bool = False
    """No notification of other nodes arrives: the node has lost its listener, and knows it."""
    latency_seconds: float = 0.002
    """The longest time between the node and the database, in each direction. Each time is drawn."""


class NodeSignals(LocalSignals):
    """The signals of a process. Subscribers are notified in the order in which they began to listen: sets have none."""

    def _add(self, waiter: Any, topics: Collection[str]) -> None:
        for topic in topics:
            self._waiters_by_topic.setdefault(topic, cast("set[Any]", _OrderedSet())).add(waiter)

    @property
    def topics(self) -> Sequence[str]:
        return list(self._waiters_by_topic)


class _OrderedSet(dict[Any, None]):
    """As much of a set as `LocalSignals` uses."""

    def add(self, value: Any) -> None:
        self[value] = None

    def discard(self, value: Any) -> None:
        self.pop(value, None)


class NodeStore:
    """Implements `domain.ports.Store` for one node. `context` belongs to the node's process."""

    def __init__(
        self,
        database: SharedDatabase,
        loop: SimulationLoop,
        *,
        clock: NodeClock,
        context: Context,
        sealing_key: str,
        on_lease_end: Callable[[LeaseEnd], None],
    ) -> None:
        self.faults = StoreFaults()
        self._on_lease_end = on_lease_end
        self._database = database
        self._loop = loop
        self._seams = NodeConnection(clock, database.chance, sealing_key=sealing_key)
        self._context = context
        self._signals = NodeSignals()
        self._draw = database.chance.random

    @property
    def signals(self) -> NodeSignals:
        return self._signals

    @property
    def is_exclusive(self) -> bool:
        return False

    async def write(self, work: Work[T]) -> T:
        unit = UnitOfWork(work, self._loop.create_future())
        self._call_after_latency(self._run_unit, unit, 1)
        try:
            return await unit.done
        finally:
            unit.done.cancel()  # a caller that is cancelled before its unit has run removes it

    async def write_for(self, principal: Principal, work: Work[T]) -> T:  # noqa: ARG002 - the names of Store
        return await self.write(work)

    async def write_heartbeat(self, work: Work[T]) -> T:
        return await self.write(work)

    async def read(self, work: Work[T]) -> T:
        done: asyncio.Future[Any] = self._loop.create_future()
        self._call_after_latency(self._run_read, work, done)
        return await done

    async def scan(self, principal: Principal | None, work: Work[T]) -> T:  # noqa: ARG002 - the names of Store
        return await self.read(work)

    def receive_notifications(self, topics: Sequence[str]) -> None:
        """Called by the database for units of other nodes."""
        is_lost = self.faults.is_away or self.faults.is_deaf
        if self._draw() >= self.faults.lost_notifications and not is_lost:
            self._call_after_latency(self._signals.notify, topics)

    def listen_again(self) -> None:
        """The node has a listener again. What was notified meanwhile is lost, so everybody who waits reads the store."""
        self._call_after_latency(self._signals.notify_all)

    # -- at the database, and on the way to it --

    def _run_unit(self, unit: UnitOfWork, run: int) -> None:
        if unit.done.done():
            return
        if self.faults.is_away:
            unit.error = StoreUnavailable(REFUSED)
            self._call_after_latency(self._complete, unit)
            return
        if self._database.is_held:
            self._after_release(self._run_unit, unit, run)
        elif self.faults.pauses and self._draw() < self.faults.pauses:
            self._step(unit, run, self._database.begin_steps(unit, self._seams, self), has_database=False)
        else:
            self._database.run_unit(unit, self._seams)
            self._end_run(unit, run)

    def _step(self, unit: UnitOfWork, run: int, steps: SteppedUnit, *, has_database: bool) -> None:
        """Run the unit to its next pause. `has_database`: it held the database at its last pause."""
        if has_database and not self._database.holds(unit):
            steps.abort(StoreUnavailable(ABORTED))
            self._call_after_latency(self._complete, unit)
            return
        has_ended = steps.advance()
        holds = self._database.holds(unit)
        if not has_ended:
            pause = self._after_release if self._database.is_held and not holds else self._after_step
            pause(partial(self._step, has_database=holds), unit, run, steps)
        elif not holds:
            self._call_after_latency(self._complete, unit)  # it had no statement, so there is nothing to commit
        else:
            if unit.error is not None:
                self._database.roll_back()
            self._end_run(unit, run)

    def abort_open_unit(self) -> None:
        """The node does not go on: the database rolls its open unit back, so that others are not held up."""
        self._database.abort_unit(self)

    def _end_run(self, unit: UnitOfWork, run: int) -> None:
        """Commit the open run of the unit, unless it raised an error or has to run again."""
        if unit.error is None and unit.committing_actions:
            unit.run_committing_actions()  # before it is known whether the commit succeeds
        if unit.error is None and run < RUNS_MAX and self._draw() < self.faults.reruns:
            self._database.roll_back()
            unit.reset_after_rollback()
            self._call_after_latency(self._run_unit, unit, run + 1)
            return
        if unit.error is None:
            for end in self._database.commit():
                self._on_lease_end(end)
            if self._draw() < self.faults.lost_responses:
                unit.error = StoreUnavailable(RESPONSE_LOST)
        self._call_after_latency(self._complete, unit)

    def _run_read(self, work: Work[Any], done: "asyncio.Future[Any]") -> None:
        if done.done():
            return
        if self.faults.is_away:
            self._call_after_latency(_set_exception, done, StoreUnavailable(REFUSED))
            return
        if self._database.is_held:  # what its unit has written is not committed yet
            self._after_release(self._run_read, work, done)
            return
        try:
            value = self._database.read(work, self._seams)
        except Exception as error:  # noqa: BLE001 - boundary: the error is its caller's
            self._call_after_latency(_set_exception, done, error)
        else:
            self._call_after_latency(_set_result, done, value)

    # -- back at the node --

    def _complete(self, unit: UnitOfWork) -> None:
        complete_units([unit])
        if unit.error is None and unit.topics:
            self._signals.notify(unit.topics)
            self._database.publish(unit.topics, self)

    def _after_step(self, callback: Callable[..., None], *args: Any) -> None:
        loop = self._loop
        loop.schedule(loop.time() + self._draw() * STEP_SECONDS_MAX, callback, args, self._context)

    def _after_release(self, callback: Callable[..., None], *args: Any) -> None:
        """Go on after a step once no other unit holds the database."""
        self._database.on_release(partial(self._after_step, callback, *args))

    def _call_after_latency(self, callback: Callable[..., None], *args: Any) -> None:
        loop = self._loop
        loop.schedule(loop.time() + self._draw() * self.faults.latency_seconds, callback, args, self._context)


def _set_result(done: "asyncio.Future[Any]", value: Any) -> None:
    if not done.done():
        done.set_result(value)


def _set_exception(done: "asyncio.Future[Any]", error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
