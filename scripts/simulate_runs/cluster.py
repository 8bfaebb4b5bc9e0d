"""The nodes of a simulation: they start, die, freeze, stop and return; and requests reach them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeVar

from scripts.simulate_runs.audit import LeaseAudit
from scripts.simulate_runs.database import FIRST_SEALING_KEY, SharedDatabase
from scripts.simulate_runs.history import History, Subject
from scripts.simulate_runs.loop import SimulationLoop
from scripts.simulate_runs.node import Node, make_node_clock
from scripts.simulate_runs.node_store import NodeStore, StoreFaults
from scripts.simulate_runs.plan import Plan, UpstreamKind
from scripts.simulate_runs.processes import ProcessState, SimulatedProcess, SimulatedTask
from scripts.simulate_runs.receivers import NodeSender, SimulatedReceivers
from scripts.simulate_runs.sessions import NodeSessions
from scripts.simulate_runs.upstreams import SimulatedUpstream

T = TypeVar("T")

REQUEST_LATENCY_SECONDS: Final = 0.02
"""The longest time between a client and a node, in each direction."""


class ConnectionLost(Exception):
    """The node died, or did not answer in time: the client does not know what became of its request."""


@dataclass(slots=True, eq=False)
class RunningNode:
    """One process of a node, from its start to its end."""

    node: Node
    process: SimulatedProcess
    context: Context
    main: asyncio.Task[None]
    ended: asyncio.Event
    """Set when the process has stopped or died."""
    requests: dict[asyncio.Future[Any], None]
    handlers: "set[asyncio.Task[None]]"
    """The tasks of the requests that the process carries out. An HTTP server waits for them before it ends."""
    last_frozen_at: float = -1.0

    @property
    def is_alive(self) -> bool:
        return self.process.state is not ProcessState.DEAD and not self.main.done()

    @property
    def answers(self) -> bool:
        return self.process.state is ProcessState.RUNNING and not self.main.done()


class Connection:
    """Messages from a node to a client. They arrive in their order, until the client closes it."""

    def __init__(
        self, loop: SimulationLoop, chance: Random, *, world: Context, on_message: Callable[[Any], None]
    ) -> None:
        self.is_open = True
        self._loop = loop
        self._chance = chance
        self._world = world
        self._on_message = on_message
        self._arrives_at = 0.0

    def send(self, message: Any) -> None:
        """In the process of the node."""
        latency = self._chance.random() * REQUEST_LATENCY_SECONDS
        self._arrives_at = max(self._arrives_at, self._loop.time() + latency)
        self._loop.call_at(self._arrives_at, self._deliver, message, context=self._world)

    def _deliver(self, message: Any) -> None:
        if self.is_open:
            self._on_message(message)


class Cluster:
    def __init__(
        self,
        plan: Plan,
        *,
        loop: SimulationLoop,
        database: SharedDatabase,
        upstreams: Mapping[UpstreamKind, SimulatedUpstream],
        receivers: SimulatedReceivers,
        history: History,
        chance: Random,
        world: Context,
    ) -> None:
        self.places: list[RunningNode | None] = [None] * plan.nodes
        """The process that runs at each place at present."""
        self.ended: list[RunningNode] = []
        """Processes that have stopped or died."""
        self._plan = plan
        self._loop = loop
        self._database = database
        self._upstreams = upstreams
        self._receivers = receivers
        self._history = history
        self._chance = chance
        self._world = world
        self._births = 0
        self.sealing_key = FIRST_SEALING_KEY
        """Of processes that start from now on."""
        self.faults = [
            StoreFaults(reruns=plan.reruns, pauses=plan.pauses, lost_notifications=plan.lost_notifications)
            for _ in self.places
        ]
        """Of each place: a restarted node has the network of the earlier one."""

    # -- nodes --

    def start_node(self, place: int) -> RunningNode:
        self._births += 1
        name = f"node-{place}.{self._births}"
        process, context = self._loop.create_process(name)
        offsets = self._plan.wall_offsets
        clock = make_node_clock(
            self._loop, self._chance, wall_offset_seconds=offsets[place] if place < len(offsets) else 0.0
        )
        audit = LeaseAudit(
            name,
            database=self._database,
            clock=clock,
            history=self._history,
            open_calls_max=self._plan.open_calls_max,
        )
        store = NodeStore(
            self._database,
            self._loop,
            clock=clock,
            context=context,
            sealing_key=self.sealing_key,
            on_lease_end=audit.check_lease_end,
        )
        store.faults = self.faults[place]
        node = context.run(
            Node,
            name,
            store=store,
            clock=clock,
            sender=NodeSender(self._receivers, loop=self._loop, world=self._world, on_send=audit.check_send),
            sessions=NodeSessions(
                self._upstreams,
                node=name,
                store=store,
                logins=self._plan.logins,
                loop=self._loop,
                capacity=self._plan.capacity,
                history=self._history,
            ),
            chance=self._chance,
            plan=self._plan,
        )
        main = self._loop.create_task(node.run(), context=context)
        running = RunningNode(node, process, context, main, asyncio.Event(), {}, set())
        main.add_done_callback(lambda _: self._remove(place, running), context=self._world)
        self._database.connect(store)
        self.places[place] = running
        self._history.note(Subject.FAULT, f"{name} starts")
        return running

    def kill_node(self, place: int) -> None:
        """End the process between two of its callbacks. Nothing of it runs afterwards."""
        running = self.places[place]
        if running is None:
            return
        self._history.disturb(f"{running.node.name} is killed")
        self._loop.kill_process(running.process)
        self._remove(place, running)

    def freeze_node(self, place: int) -> RunningNode | None:
        """The node that freezes: when it thaws, it may have left its place, while some of its requests still run."""
        running = self.places[place]
        if running is not None:
            self._history.disturb(f"{running.node.name} freezes")
            self._loop.freeze_process(running.process)
            running.node.store.abort_open_unit()
        return running

    def thaw_node(self, running: RunningNode) -> None:
        if running.process.state is ProcessState.FROZEN:
            running.last_frozen_at = self._loop.time()
            self._history.note(Subject.FAULT, f"{running.node.name} thaws")
            self._loop.thaw_process(running.process)

    async def stop_node(self, place: int) -> None:
        """Stop the process gracefully, and wait for its end: a process ends after the requests that it handles."""
        running = self.places[place]
        if running is None:
            return
        self._history.note(Subject.FAULT, f"{running.node.name} stops")
        self._loop.call_soon(running.node.request_stop, context=running.context)
        await running.ended.wait()
        if running.handlers and running.process.state is not ProcessState.DEAD:
            await asyncio.wait(running.handlers)

    def _remove(self, place: int, running: RunningNode) -> None:
        if self.places[place] is not running:
            return
        self.places[place] = None
        self.ended.append(running)
        running.ended.set()
        self._database.disconnect(running.node.store)
        for request in list(running.requests):
            if not request.done():
                request.set_exception(ConnectionLost(running.node.name))

    def find_node(self, name: str) -> RunningNode | None:
        return next((each for each in self.places if each is not None and each.node.name == name), None)

    def find_leaks(self, running: RunningNode, tasks: "Sequence[SimulatedTask[Any]]") -> list[str]:
        """What a process that has stopped gracefully has left behind. `tasks` are the unfinished ones of all processes."""
        found = {
            "tasks": [task.get_name() for task in tasks if task.process is running.process],
            "topics": running.node.store.signals.topics,
            "sessions": running.node.sessions.open_count,
            "permits": running.node.count_permits(),
            "capacity": running.node.count_capacity(),
        }
        return [f"{running.node.name} leaks {name}: {what}" for name, what in found.items() if what]

    # -- requests of clients --

    def open_connection(self, on_message: Callable[[Any], None]) -> "Connection":
        """What a node sends before the end of its response, as over SSE."""
        return Connection(self._loop, self._chance, world=self._world, on_message=on_message)

    async def request(
        self, work: Callable[[Node], Awaitable[T]], *, timeout_seconds: float, place: int | None = None
    ) -> T:
        """Let a node carry out a request, as an HTTP server would. Raises `ConnectionLost`."""
        running = self._choose_node(place)
        response: asyncio.Future[T] = self._loop.create_future()
        running.requests[response] = None
        latency = self._chance.random() * REQUEST_LATENCY_SECONDS
        self._loop.call_later(latency, self._begin_request, running, work, response, context=running.context)
        lost = self._loop.call_later(timeout_seconds, _resolve, response, None, ConnectionLost(running.node.name))
        try:
            return await response
        finally:
            lost.cancel()
            running.requests.pop(response, None)

    def _choose_node(self, place: int | None) -> RunningNode:
        candidates = self.places if place is None else [self.places[place % len(self.places)]]
        alive = [each for each in candidates if each is not None]
        if not alive:
            raise ConnectionLost("no node")
        return alive[int(self._chance.random() * len(alive))]

    def _begin_request(
        self,
        running: RunningNode,
        work: Callable[[Node], Awaitable[T]],
        response: "asyncio.Future[T]",
    ) -> None:
        """In the process of the node."""

        async def respond() -> None:
            try:
                value = await work(running.node)
            except Exception as error:  # noqa: BLE001 - boundary: the client gets every error
                self._answer(response, None, error)
            else:
                self._answer(response, value, None)
            finally:
                running.handlers.discard(handler)

        handler = self._loop.create_task(respond())
        running.handlers.add(handler)

    def _answer(self, response: "asyncio.Future[T]", value: T | None, error: Exception | None) -> None:
        latency = self._chance.random() * REQUEST_LATENCY_SECONDS
        self._loop.call_later(latency, _resolve, response, value, error, context=self._world)


def _resolve(response: "asyncio.Future[Any]", value: Any, error: Exception | None) -> None:
    if response.done():
        return
    if error is None:
        response.set_result(value)
    else:
        response.set_exception(error)
