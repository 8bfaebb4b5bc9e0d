"""One run: the plan is carried out, everything has time to settle, and what everybody saw is put together."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx

from scripts.chaos_runs.actors import Actor, Child, free_port
from scripts.chaos_runs.agent import Agent
from scripts.chaos_runs.history import CallSeen, Heard, History, Start
from scripts.chaos_runs.ledger import entries
from scripts.chaos_runs.plan import Blow, Plan, Target
from scripts.chaos_runs.service import KILLED, STOPPED

SETTLE_SECONDS: Final = 60.0
"""From the last blow until every call has ended and rung. It takes one or two; a callback that failed is sent again after six,
a lease that nobody prolongs any more lasts thirty."""
LOOK_SECONDS: Final = 0.05
STDIO_SCRIPT: Final = Path(__file__).with_name("stdio_upstream.py")


@dataclass(frozen=True, slots=True)
class Run:
    history: History
    kills: int
    stops: int
    steps: int
    """Of these, at a step of the plan; the others were at a moment."""


async def run(plan: Plan, *, settle_seconds: float = SETTLE_SECONDS, forgets: bool = False) -> Run:
    """Carry out one plan in a folder of its own. `forgets`: the receiver keeps nothing, so that the checker must complain."""
    with TemporaryDirectory(prefix="ringback-chaos-") as folder:
        stage = Stage(Path(folder), plan, forgets=forgets)
        async with asyncio.TaskGroup() as group:
            lives = [group.create_task(actor.live()) for actor in stage.actors]
            done = await stage.play(settle_seconds)
            for life in lives:
                life.cancel()
        return done


class Stage:
    def __init__(self, folder: Path, plan: Plan, *, forgets: bool) -> None:
        self._plan = plan
        self._starts, self._callbacks = folder / "starts.jsonl", folder / "callbacks.jsonl"
        self._calls = [CallSeen(key=call.key, kind=call.kind, unsafe=call.unsafe) for call in plan.calls]
        self._stops = 0
        self._child_kills = 0
        pid_file = folder / "stdio.pid"
        self._child = Child(pid_file)
        modern, legacy = (_http(folder, name, self._starts) for name in ("modern", "legacy"))
        spec = {"port": free_port(), "ledger": self._callbacks, "forgets": forgets}
        self._receiver = Actor(name="receiver", entry=_entry("receiver:main"), spec=spec, folder=folder)
        command = f"{sys.executable} -I -S {STDIO_SCRIPT} {self._starts} {pid_file}"
        upstreams = {"stdio": command, "modern": f"{modern.url}/mcp", "legacy": f"{legacy.url}/mcp"}
        self._service = Actor(
            name="service",
            entry=_entry("service:main"),
            spec={"folder": folder, "port": free_port(), "upstreams": upstreams, "step": None},
            folder=folder,
            lives=[(life, {"step": life.step}) for life in plan.lives],
        )
        self._by_target = {Target.SERVICE: self._service, Target.MODERN: modern, Target.LEGACY: legacy}
        self.actors = [self._receiver, modern, legacy, self._service]

    async def play(self, settle_seconds: float) -> Run:
        for actor in self.actors:
            if actor is not self._service:
                await actor.until_listening()
        async with httpx.AsyncClient(base_url=self._service.url, trust_env=False) as http:
            agent = Agent(http, callback_url=f"{self._receiver.url}/callbacks")
            await agent.register()
            await self._carry_out(agent, settle_seconds)
            history = await self._history(agent, settle_seconds)
        words = self._service.log.read_bytes()
        stops = words.count(STOPPED)
        return Run(
            history,
            kills=self._child_kills + sum(actor.kills for actor in self.actors),
            stops=self._stops + stops,
            steps=words.count(KILLED) + stops,
        )

    async def _carry_out(self, agent: Agent, settle_seconds: float) -> None:
        """The calls, and the blows beside them; a call that has not ended by then is left as it is."""
        seeing = [agent.see_through(*pair) for pair in zip(self._plan.calls, self._calls, strict=True)]
        last_blow = max((blow.at_seconds + blow.lasts_seconds for blow in self._plan.blows), default=0.0)
        async with asyncio.TaskGroup() as group:
            blows = [group.create_task(self._strike(blow)) for blow in self._plan.blows]
            calls = [group.create_task(each) for each in seeing]
            await asyncio.wait([*calls, *blows], timeout=last_blow + settle_seconds)
            for task in calls:
                task.cancel()

    async def _strike(self, blow: Blow) -> None:
        await asyncio.sleep(blow.at_seconds)
        actor = self._by_target.get(blow.target)
        victim = actor or self._child
        if blow.kills:
            if actor is not None:
                actor.away_seconds = blow.lasts_seconds
            self._child_kills += bool(victim.send(signal.SIGKILL)) and actor is None
            return
        self._stops += 1
        victim.send(signal.SIGSTOP)
        await asyncio.sleep(blow.lasts_seconds)
        victim.send(signal.SIGCONT)

    async def _history(self, agent: Agent, settle_seconds: float) -> History:
        """What there is at the end: every acknowledged call looked at once more, after all that could come has come."""
        acknowledged = [call for call in self._calls if call.ids]
        for call in acknowledged:
            await agent.look(call)
        wanted = {(webhook, call.ids[0]) for call in acknowledged for webhook in call.webhooks}

        async def settled() -> bool:
            return wanted <= {(heard.webhook, heard.ends) for heard in self._heard()}

        await _until(settled, settle_seconds)
        logged = await agent.ends_in_the_log()
        return History(
            calls=self._calls,
            starts=[Start(entry["key"], entry["round"]) for entry in entries(self._starts)],
            heard=self._heard(),
            logged=logged,
            surprises=agent.surprises,
        )

    def _heard(self) -> list[Heard]:
        return [Heard(each["message_id"], each["webhook"], each["body"]) for each in entries(self._callbacks)]


def _http(folder: Path, name: str, ledger: Path) -> Actor:
    spec: dict[str, Any] = {"port": free_port(), "ledger": ledger}
    return Actor(name=name, entry=_entry(f"upstreams:{name}"), spec=spec, folder=folder)


def _entry(name: str) -> str:
    return f"{__package__}.{name}"


async def _until(reached: Callable[[], Awaitable[bool]], seconds: float) -> None:
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + seconds
    while not await reached() and loop.time() < ends_at:  # noqa: ASYNC110 - other processes ring no bell
        await asyncio.sleep(LOOK_SECONDS)
