"""One run: executes the plan, waits for everything to settle, and collects the observations."""

import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx

from scripts.chaos_runs.agent import Agent
from scripts.chaos_runs.database import Database, running_database
from scripts.chaos_runs.journal import entries
from scripts.chaos_runs.observations import Observations, ObservedCall, ReceivedCallback, ToolStart
from scripts.chaos_runs.plan import Damage, FaultInjection, Plan, PlannedNode, Store, Target
from scripts.chaos_runs.processes import ManagedChild, ManagedProcess
from scripts.chaos_runs.service import KILLED, STOPPED
from scripts.ports import free_port

SETTLE_SECONDS: Final = 300.0
"""From the last fault until every call has ended and all callbacks have arrived: usually a second on SQLite, and ten seconds on
PostgreSQL, where nodes wait for the leases of a dead one. It only bounds a run: three nodes beside twenty busy processes, which
lose their leases for want of a core, needed more than a minute."""
POLL_SECONDS: Final = 0.05
STDIO_SCRIPT: Final = Path(__file__).with_name("stdio_upstream.py")


@dataclass(frozen=True, slots=True)
class ChaosResult:
    history: Observations
    kills: int
    stops: int
    steps: int
    """The kills and stops at a step of the plan; the others happened at a moment."""
    damages: Counter[str]
    """The faults from outside, by what was damaged and how."""


async def run_chaos(plan: Plan, *, settle_seconds: float = SETTLE_SECONDS, forgets: bool = False) -> ChaosResult:
    """Execute one plan in its own folder. With `forgets` the receiver stores nothing, which the checker must detect."""
    with TemporaryDirectory(prefix="ringback-chaos-") as folder:
        async with running_database(plan, Path(folder)) as database:
            stage = ChaosEnvironment(Path(folder), plan, database, forgets=forgets)
            async with asyncio.TaskGroup() as group:
                lives = [group.create_task(actor.keep_running()) for actor in stage.actors]
                done = await stage.run_plan(settle_seconds)
                for life in lives:
                    life.cancel()
            return done


class ChaosEnvironment:
    def __init__(self, folder: Path, plan: Plan, database: Database, *, forgets: bool) -> None:
        self._plan = plan
        self._database = database
        self._starts, self._callbacks = folder / "starts.jsonl", folder / "callbacks.jsonl"
        self._calls = [ObservedCall(key=call.key, kind=call.kind, unsafe=call.unsafe) for call in plan.calls]
        self._stops = 0
        self._child_kills = 0
        self._damages: Counter[str] = Counter()
        modern, legacy = (_http(folder, name, self._starts) for name in ("modern", "legacy"))
        spec = {"port": free_port(), "ledger": self._callbacks, "forgets": forgets}
        self._receiver = ManagedProcess(name="receiver", entry=_entry("receiver:main"), spec=spec, folder=folder)
        self._http_upstreams = {Target.MODERN: modern, Target.LEGACY: legacy}
        self._children = [ManagedChild(folder / f"stdio-{number}.pid") for number in range(len(plan.nodes))]
        self._nodes = [self._make_node(folder, number, node) for number, node in enumerate(plan.nodes)]
        self._others = [self._receiver, modern, legacy]
        self.actors = [*self._others, *self._nodes]

    def _make_node(self, folder: Path, number: int, planned: PlannedNode) -> ManagedProcess:
        """A node with a child process of its own behind the stdio upstream."""
        command = f"{sys.executable} -I -S {STDIO_SCRIPT} {self._starts} {self._children[number].pid_file}"
        http = {target.value: f"{upstream.url}/mcp" for target, upstream in self._http_upstreams.items()}
        spec: dict[str, Any] = {
            "folder": folder,
            "port": free_port(),
            "upstreams": {"stdio": command, **http},
            "step": None,
            "clock_ahead_seconds": planned.clock_ahead_seconds,
            **self._database.spec(number),
        }
        return ManagedProcess(
            name=f"node-{number}",
            entry=_entry("service:main"),
            spec=spec,
            folder=folder,
            start_specs=[(life, {"step": life.step}) for life in planned.service_runs],
            may_fail_to_start=self._plan.store is Store.POSTGRES,
        )

    async def run_plan(self, settle_seconds: float) -> ChaosResult:
        for actor in self._others:
            await actor.wait_until_listening()
        async with AsyncExitStack() as stack:
            clients = [httpx.AsyncClient(base_url=node.url, trust_env=False) for node in self._nodes]
            for client in clients:
                await stack.enter_async_context(client)
            chance = random.Random(self._plan.seed)  # noqa: S311 - a seed replays its plan
            agent = Agent(clients, chance=chance, callback_url=f"{self._receiver.url}/callbacks")
            await agent.register()
            await self._carry_out(agent, settle_seconds)
            history = await self.collect_observations(agent, settle_seconds)
        words = b"".join(node.log.read_bytes() for node in self._nodes)
        stops = words.count(STOPPED)
        return ChaosResult(
            history,
            kills=self._child_kills + sum(actor.kills for actor in self.actors),
            stops=self._stops + stops,
            steps=words.count(KILLED) + stops,
            damages=self._damages,
        )

    async def _carry_out(self, agent: Agent, settle_seconds: float) -> None:
        """Run the calls and inject the faults."""
        call_runs = [agent.run_call(*pair) for pair in zip(self._plan.calls, self._calls, strict=True)]
        last_fault_at = max((fault.at_seconds + fault.freeze_seconds for fault in self._plan.faults), default=0.0)
        async with asyncio.TaskGroup() as group:
            faults = [group.create_task(self.inject_fault(fault)) for fault in self._plan.faults]
            calls = [group.create_task(each) for each in call_runs]
            await asyncio.wait([*calls, *faults], timeout=last_fault_at + settle_seconds)
            for task in calls:
                task.cancel()

    async def inject_fault(self, fault: FaultInjection) -> None:
        await asyncio.sleep(fault.at_seconds)
        self._damages[f"{fault.target} {fault.damage}"] += 1
        if fault.target in {Target.DATABASE, Target.NETWORK}:
            await self._database.inject_fault(fault)
            return
        actor = self._nodes[fault.node] if fault.target is Target.SERVICE else self._http_upstreams.get(fault.target)
        victim = actor or self._children[fault.node]
        if fault.damage is Damage.KILL:
            if actor is not None:
                actor.downtime_seconds = fault.freeze_seconds
            self._child_kills += bool(victim.send_signal(signal.SIGKILL)) and actor is None
            return
        self._stops += 1
        victim.send_signal(signal.SIGSTOP)
        await asyncio.sleep(fault.freeze_seconds)
        victim.send_signal(signal.SIGCONT)

    async def collect_observations(self, agent: Agent, settle_seconds: float) -> Observations:
        """Collect the observations, with a last read of every acknowledged call after everything has settled."""
        acknowledged = [call for call in self._calls if call.ids]
        for call in acknowledged:
            await agent.read_call(call)
        wanted = {(webhook, call.ids[0]) for call in acknowledged for webhook in call.webhooks}

        async def settled() -> bool:
            return wanted <= {(heard.webhook, heard.is_end_event) for heard in self.read_callbacks()}

        await wait_until(settled, settle_seconds)
        logged = await agent.count_logged_ends()
        return Observations(
            calls=self._calls,
            starts=[ToolStart(entry["key"], entry["round"]) for entry in entries(self._starts)],
            callbacks=self.read_callbacks(),
            logged_events=logged,
            unexpected_responses=agent.surprises,
        )

    def read_callbacks(self) -> list[ReceivedCallback]:
        return [
            ReceivedCallback(each["message_id"], each["webhook"], each["body"], each["signed_seconds_ago"])
            for each in entries(self._callbacks)
        ]


def _http(folder: Path, name: str, ledger: Path) -> ManagedProcess:
    spec: dict[str, Any] = {"port": free_port(), "ledger": ledger}
    return ManagedProcess(name=name, entry=_entry(f"upstreams:{name}"), spec=spec, folder=folder)


def _entry(name: str) -> str:
    return f"{__package__}.{name}"


async def wait_until(reached: Callable[[], Awaitable[bool]], seconds: float) -> None:
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + seconds
    while not await reached() and loop.time() < ends_at:  # noqa: ASYNC110 - other processes cannot set an event
        await asyncio.sleep(POLL_SECONDS)
