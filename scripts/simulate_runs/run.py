"""Runs one plan: a cluster, its clients, its faults, the time until everything has settled, and the stop of all nodes."""

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from contextvars import Context
from dataclasses import dataclass
from random import Random
from typing import Final

from scripts.simulate_runs.actors import Actors
from scripts.simulate_runs.cluster import Cluster
from scripts.simulate_runs.database import EmptyDatabase, SharedDatabase
from scripts.simulate_runs.faults import Faults
from scripts.simulate_runs.history import History, Subject
from scripts.simulate_runs.loop import SimulationLoop, StuckSimulation
from scripts.simulate_runs.plan import Plan, UpstreamKind
from scripts.simulate_runs.receivers import SimulatedReceivers
from scripts.simulate_runs.records import StoredRecords, find_left_keys, read_records
from scripts.simulate_runs.requester import Requester
from scripts.simulate_runs.upstreams import SimulatedUpstream

LOGGER: Final = logging.getLogger("ringback")
LOG_LEVEL: Final = logging.ERROR
"""Of runs without a story."""
SETTLE_CHECK_SECONDS: Final = 2.0
QUIET_CHECKS: Final = 2
RESEAL_SECONDS: Final = 15.0
"""How long the nodes that have started last may take to reseal all values, with one step that fails."""
SETTLE_SECONDS_MAX: Final = 4000.0
"""Longer than every time-out and schedule of a plan: what is open then will never end."""
STOP_SECONDS_MAX: Final = 60.0
"""A graceful stop drains for a few seconds, and each abandoned request may take six."""

_OPEN_WORK: Final = """
    SELECT (SELECT count(*) FROM calls WHERE status NOT IN ('completed', 'failed', 'cancelled'))
         + (SELECT count(*) FROM deliveries WHERE state IN ('pending', 'leased', 'held'))
         + (SELECT count(*) FROM erasures WHERE finished_at IS NULL)
"""


_REVOKED_LEASES: Final = "SELECT webhook_id, event_id FROM revoked_leases WHERE event_id IS NOT NULL"
_SECOND_LIVES: Final = """
    SELECT target FROM audit_entries WHERE operation = 'register_webhook' GROUP BY target HAVING count(*) > 1
"""
"""Subscriptions that began more than once. The response to a beginning may have been lost."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    plan: Plan
    history: History
    records: StoredRecords
    leaks: tuple[str, ...]
    trace_hash: str
    callbacks: int
    seconds: float
    """Of simulated time."""


class Simulation:
    """The parts of one run."""

    def __init__(self, plan: Plan, empty: EmptyDatabase) -> None:
        chance = Random(plan.seed)  # noqa: S311 - a seed replays its run
        self.plan = plan
        self.loop = SimulationLoop(chance)
        self.history = History(self.loop.time)
        self.database = SharedDatabase(empty, chance)
        _, self._world = self.loop.create_process("world")
        self.upstreams = self._make_upstreams(chance, self._world)
        self._chance = chance

    def run(self) -> SimulationResult:
        leaks = self.loop.run_simulation(self._run_plan())
        self.history.second_lives.update(row["target"] for row in self.database.query(_SECOND_LIVES))
        self.history.revoked_leases.update(map(tuple, self.database.query(_REVOKED_LEASES)))
        if self.plan.resealed_at_seconds is not None:
            self.history.left_keys += find_left_keys(self.database)
        return SimulationResult(
            plan=self.plan,
            history=self.history,
            records=read_records(self.database, erased=self._list_erased()),
            leaks=tuple(leaks),
            trace_hash=self.loop.trace_hash(),
            callbacks=self.loop.callback_count,
            seconds=self.loop.time(),
        )

    def _list_erased(self) -> list[str]:
        """The ids and names of calls that were erased, if their erasures are finished."""
        erased = [call for call in self.plan.calls if self.history.may_be_erased(call)]
        return [name for call in erased for name in (call.key, *self.history.call(call.key).call_ids)]

    def _make_upstreams(self, chance: Random, world: Context) -> dict[UpstreamKind, SimulatedUpstream]:
        planned = {call.key: call for call in self.plan.calls}
        with_login = {login.upstream for login in self.plan.logins}
        return {
            kind: SimulatedUpstream(
                kind,
                needs_login=kind in with_login,
                planned=planned,
                history=self.history,
                loop=self.loop,
                context=world,
                chance=chance,
            )
            for kind in (UpstreamKind.TASK, UpstreamKind.ROUNDS, UpstreamKind.PLAIN)
        }

    async def _run_plan(self) -> list[str]:
        receivers = SimulatedReceivers(self.plan.receivers, history=self.history, loop=self.loop, chance=self._chance)
        cluster = Cluster(
            self.plan,
            loop=self.loop,
            database=self.database,
            upstreams=self.upstreams,
            receivers=receivers,
            history=self.history,
            chance=self._chance,
            world=self._world,
        )
        for place in range(self.plan.nodes):
            cluster.start_node(place)
        faults = Faults(
            self.plan,
            cluster=cluster,
            upstreams=self.upstreams,
            history=self.history,
            loop=self.loop,
            context=self._world,
        )
        actors = Actors(
            self.plan,
            requester=Requester(cluster),
            faults=faults,
            upstreams=self.upstreams,
            history=self.history,
            loop=self.loop,
        )
        await self._let_act(actors, faults)
        return await self._stop_all(cluster)

    async def _let_act(self, actors: Actors, faults: Faults) -> None:
        """Let everything happen that the plan contains, and what follows from it."""
        has_settled = asyncio.Event()
        readers = [asyncio.create_task(each) for each in actors.follow_until(has_settled)]
        async with asyncio.TaskGroup() as group:
            for act in actors.act():
                group.create_task(act)
        faults.end_all()
        await self._settle(actors)
        if await actors.renew_subscriptions():
            await self._settle(actors)
        has_settled.set()
        if self.plan.resealed_at_seconds is not None:
            await asyncio.sleep(RESEAL_SECONDS)
        await asyncio.gather(*readers, actors.clients.try_tokens())

    async def _settle(self, actors: Actors) -> None:
        """Wait until no call and no delivery is open, twice in a row: a thawed node may still have requests to carry out."""
        give_up_at = self.loop.time() + SETTLE_SECONDS_MAX
        quiet_checks = 0
        while quiet_checks < QUIET_CHECKS:
            if self.loop.time() >= give_up_at:
                self.history.note(Subject.FAULT, "calls or deliveries are still open, long after the last fault")
                return
            await asyncio.sleep(SETTLE_CHECK_SECONDS)
            for row in self.database.query("SELECT upstream FROM upstream_controls"):
                await actors.operators.resume_upstream(row["upstream"])  # a late request of a node that had been frozen
            quiet_checks = 0 if self.database.query(_OPEN_WORK)[0][0] else quiet_checks + 1

    async def _stop_all(self, cluster: Cluster) -> list[str]:
        """Stop all nodes, and return what they have left behind."""
        running = [each for each in cluster.places if each is not None]
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                for place in range(len(cluster.places)):
                    await cluster.stop_node(place)
        except TimeoutError:
            return [f"a node does not stop within {STOP_SECONDS_MAX:.0f} s"]
        await asyncio.sleep(1.0)
        tasks = self.loop.unfinished_tasks()
        return [leak for each in running for leak in cluster.find_leaks(each, tasks)]


def run_plan(plan: Plan, empty: EmptyDatabase, *, log_level: int = LOG_LEVEL) -> SimulationResult:
    """Run the plan. The same plan gives the same result, with the same trace hash."""
    empty.clear()
    simulation = Simulation(plan, empty)
    with _record_logs(simulation, log_level):
        try:
            result = simulation.run()
        except Exception as error:  # noqa: BLE001 - boundary: one seed that fails does not end the others
            simulation.history.surprise(str(error) if isinstance(error, StuckSimulation) else repr(error))
            simulation.database.abort_open_unit()
            result = SimulationResult(
                plan,
                simulation.history,
                read_records(simulation.database),
                (),
                simulation.loop.trace_hash(),
                simulation.loop.callback_count,
                simulation.loop.time(),
            )
    for problem in simulation.loop.problems:
        simulation.history.surprise(problem)
    return result


class _HistoryHandler(logging.Handler):
    """Logs of Ringback become facts; an exception in the log is a bug, and so a surprise."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._history = simulation.history
        self._loop = simulation.loop

    def emit(self, record: logging.LogRecord) -> None:
        if self._loop.has_ended:
            return
        ids = {name: value for name, value in vars(record).items() if name.endswith("_id")}
        text = " ".join([record.getMessage(), *(f"{name}={value}" for name, value in ids.items())])
        if record.exc_info is not None and record.exc_info[1] is not None:
            self._history.surprise(f"{text}: {record.exc_info[1]!r}")
        else:
            self._history.note(Subject.LOG, text)


@contextmanager
def _record_logs(simulation: Simulation, level: int) -> Generator[None]:
    handler, was_propagating = _HistoryHandler(simulation), LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.propagate = False
    try:
        with nullcontext() if LOGGER.level == level else log_from(level):
            yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.propagate = was_propagating


@contextmanager
def log_from(level: int) -> Generator[None]:
    """Each change of the level clears what every logger has cached, so it is made once for many runs."""
    was_level = LOGGER.level
    LOGGER.setLevel(level)
    try:
        yield
    finally:
        LOGGER.setLevel(was_level)
