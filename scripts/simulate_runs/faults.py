"""Brings about the faults of a plan."""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Final

from scripts.simulate_runs.cluster import Cluster
from scripts.simulate_runs.database import SECOND_SEALING_KEY
from scripts.simulate_runs.history import History, Subject
from scripts.simulate_runs.loop import SimulationLoop
from scripts.simulate_runs.node_store import StoreFaults
from scripts.simulate_runs.plan import FaultKind, Plan, PlannedFault, UpstreamKind
from scripts.simulate_runs.upstreams import SimulatedUpstream

SLOW_LATENCY_SECONDS: Final = 8.0
"""Longer than a heartbeat takes, and shorter than a lease."""
LOST_RESPONSES: Final = 0.3
ALL_NODES: Final = -1


class Faults:
    def __init__(
        self,
        plan: Plan,
        *,
        cluster: Cluster,
        upstreams: Mapping[UpstreamKind, SimulatedUpstream],
        history: History,
        loop: SimulationLoop,
        context: Context,
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._upstreams = upstreams
        self._history = history
        self._loop = loop
        self._context = context
        self._have_ended = False

    async def inflict(self, fault: PlannedFault) -> None:
        """Begin the fault at its time, and end it."""
        await asyncio.sleep(fault.at_seconds)
        match fault.kind:
            case FaultKind.KILL:
                self._kill(fault)
            case FaultKind.FREEZE:
                self._freeze(fault)
            case FaultKind.STOP:
                await self._stop(fault)
            case FaultKind.UPSTREAM_CRASH | FaultKind.UPSTREAM_HANG:
                await self._disturb_upstream(fault)
            case FaultKind.PARTITION | FaultKind.LOSE_RESPONSES | FaultKind.SLOW_STORE | FaultKind.LOSE_NOTIFICATIONS:
                await self._disturb_store(fault)
            case FaultKind.LOSE_LISTENER:
                await self._lose_listener(fault)

    async def rotate_sealing_key(self, at_seconds: float) -> None:
        """Restart one node after the other with the second key as its current one."""
        await asyncio.sleep(at_seconds)
        self._cluster.sealing_key = SECOND_SEALING_KEY
        self._history.note(Subject.FAULT, "nodes that start from now on seal with the second key")
        for place in range(self._plan.nodes):
            await self._stop(PlannedFault(kind=FaultKind.STOP, node=place, at_seconds=0.0, lasts_seconds=1.0))

    def end_all(self) -> None:
        """From here on nothing goes wrong: every node runs, and everything can be reached."""
        self._have_ended = True
        for place, running in enumerate(self._cluster.places):
            if running is None:
                self._cluster.start_node(place)
            else:
                running.process.callbacks_left = None
                self._cluster.thaw_node(running)
        self._history.note(Subject.FAULT, "no more faults")

    def _kill(self, fault: PlannedFault) -> None:
        def hit() -> None:
            self._cluster.kill_node(fault.node)
            self._loop.call_later(fault.lasts_seconds, self._restart, fault.node, context=self._context)

        self._after_callbacks(fault, hit)

    def _freeze(self, fault: PlannedFault) -> None:
        def hit() -> None:
            if (frozen := self._cluster.freeze_node(fault.node)) is not None:
                self._loop.call_later(fault.lasts_seconds, self._cluster.thaw_node, frozen, context=self._context)

        self._after_callbacks(fault, hit)

    def _after_callbacks(self, fault: PlannedFault, hit: Callable[[], None]) -> None:
        running = self._cluster.places[fault.node]
        if running is not None:
            running.process.callbacks_left, running.process.on_countdown = fault.after_callbacks, hit

    def _restart(self, place: int) -> None:
        if self._cluster.places[place] is None and not self._have_ended:
            self._cluster.start_node(place)

    async def _stop(self, fault: PlannedFault) -> None:
        running = self._cluster.places[fault.node]
        if running is None:
            return
        self._history.disturb(f"{running.node.name} has to stop")
        await self._cluster.stop_node(fault.node)
        await asyncio.sleep(fault.lasts_seconds)
        self._restart(fault.node)

    async def _disturb_upstream(self, fault: PlannedFault) -> None:
        upstream = self._upstreams[fault.upstream]
        self._history.disturb(
            f"{fault.upstream} has the fault {fault.kind}",
            may_lose_answers=fault.kind is FaultKind.UPSTREAM_CRASH,
            upstream=fault.upstream,
        )
        if fault.kind is FaultKind.UPSTREAM_CRASH:
            upstream.crash(forgets_tasks=fault.forgets_tasks)
        else:
            upstream.is_hanging = True
        await asyncio.sleep(fault.lasts_seconds)
        upstream.is_up, upstream.is_hanging = True, False
        self._history.note(Subject.FAULT, f"{fault.upstream} is well again")

    async def _disturb_store(self, fault: PlannedFault) -> None:
        places = range(self._plan.nodes) if fault.node == ALL_NODES else [fault.node]
        affected = [self._cluster.faults[place] for place in places]
        self._history.disturb(
            f"{fault.kind} for {'all nodes' if fault.node == ALL_NODES else f'node-{fault.node}'}",
            may_lose_answers=fault.kind is not FaultKind.LOSE_NOTIFICATIONS,
        )
        for each in affected:
            self._apply(each, fault.kind)
        await asyncio.sleep(fault.lasts_seconds)
        for each in affected:
            self._clear(each, fault.kind)
        self._history.note(Subject.FAULT, f"{fault.kind} ends")

    async def _lose_listener(self, fault: PlannedFault) -> None:
        """No disturbance: it may only make others wait, and only until the node listens again."""
        faults, began_at = self._cluster.faults[fault.node], self._loop.time()
        faults.is_deaf = True
        self._history.note(Subject.FAULT, f"node-{fault.node} loses its listener")
        await asyncio.sleep(fault.lasts_seconds)
        faults.is_deaf = False
        self._history.deaf_times.append((began_at, self._loop.time()))
        self._history.note(Subject.FAULT, f"node-{fault.node} listens again")
        if (running := self._cluster.places[fault.node]) is not None:
            running.node.store.listen_again()

    def _apply(self, faults: StoreFaults, kind: FaultKind) -> None:
        match kind:
            case FaultKind.PARTITION:
                faults.is_away = True
            case FaultKind.LOSE_RESPONSES:
                faults.lost_responses = LOST_RESPONSES
            case FaultKind.SLOW_STORE:
                faults.latency_seconds = SLOW_LATENCY_SECONDS
            case _:
                faults.lost_notifications = 1.0

    def _clear(self, faults: StoreFaults, kind: FaultKind) -> None:
        well = StoreFaults()
        match kind:
            case FaultKind.PARTITION:
                faults.is_away = False
            case FaultKind.LOSE_RESPONSES:
                faults.lost_responses = 0.0
            case FaultKind.SLOW_STORE:
                faults.latency_seconds = well.latency_seconds
            case _:
                faults.lost_notifications = self._plan.lost_notifications
