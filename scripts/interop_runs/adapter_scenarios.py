"""The scenarios of one adapter. In each, the agent's process is killed after parking, and another one wakes it.

wake        the model reads the tool's real result, and the tool has run once
typed       the same for a tool with an outputSchema
named       the same for a tool whose arguments are called as arguments of frameworks are
duplicate   a repeated callback runs nothing, in the same process and in another
several     two calls of one run: the first callback may not go on, the second one does
at once     two calls of one run whose callbacks come at the same moment
processes   the same in two processes; the model may answer twice, but no answer is lost
died        the process that wakes is killed too, while its model runs; the callback comes again, and the agent answers
failed      the model raises when the agent wakes; the callback comes again, and the agent answers
tool error  the model reads the tool's error as a tool error
cancelled   the model reads that the call was cancelled, as a tool error
question    a tool's question reaches the framework's human side; its answer, given by another process, reaches the tool
early       a callback before the agent's state is stored is refused; it wakes the agent when it comes again
edges       what else the framework can do with parked calls: `drivers/edges_….py`, with a fake Ringback
types       pyright, strict, in the environment of the framework
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from ringback.client import RingbackClient
from scripts.interop_runs import judge
from scripts.interop_runs.adapter_checks import check_edges, check_types
from scripts.interop_runs.adapters import Adapter
from scripts.interop_runs.agent_session import AGENT_SECONDS, NOT_PARKED_YET, POLL_SECONDS, AgentFailed, AgentSession
from scripts.interop_runs.driver_process import DriverProcess
from scripts.interop_runs.environments import Environment
from scripts.interop_runs.judge import Judgement, Runs, outcome_of
from scripts.interop_runs.scenarios import new_key
from scripts.interop_runs.stage import UPSTREAM, Stage

ADAPTER_SERVER: Final = (sys.executable, "-m", "scripts.interop_runs.adapter_upstream")
RAN_ONCE: Final = Runs(started=1, finished=1)
NAMED_ARGUMENTS: Final = {"config": "c", "runtime": "r", "run_manager": "m", "tool_context": "t"}
GRAPH: Final = "AGENT_GRAPH"
"""The variable that selects one of the driver's agents."""
HANGS_AT: Final = "AGENT_HANGS_AT"
"""The variable with the number of the response at which the scripted model hangs."""
FAILS_AT: Final = "AGENT_FAILS_AT"
"""The variable with the number of the response at which the scripted model raises."""
LATER: Final = "AGENT_LATER"
"""The variable of a process whose clock is an hour ahead: a process that was at work before has died."""
INPUT_REQUIRED: Final = "call.input_required"


@dataclass(slots=True, kw_only=True)
class AdapterRun:
    adapter: Adapter
    environment: Environment
    stage: Stage
    folder: Path
    only: Sequence[str] = ()
    """The scenarios to run. Default: all."""
    note: Callable[[str], None] = print
    _processes: list[DriverProcess] = field(default_factory=list[DriverProcess])

    async def run(self) -> dict[str, Judgement]:
        """The judgements by scenario."""
        scenarios: dict[str, Callable[[], Awaitable[Judgement]]] = {
            "wake": lambda: self._wake("slow"),
            "typed": lambda: self._wake("typed"),
            "named": self._named,
            "duplicate": self._duplicate,
            "several": self._several,
            "at once": self._at_once,
            "processes": self._two_processes,
            "died": self._died,
            "failed": self._failed,
            "tool error": lambda: self._wake("broken", is_error=True),
            "cancelled": self._cancelled,
            "question": self._question,
            **({} if self.adapter.saves_first else {"early": self._early}),
            **{graph: partial(self._several, graph) for graph in self.adapter.graphs},
            **({"edges": self._edges} if self.adapter.edges.exists() else {}),
            "types": self._types,
        }
        await self._register_webhook()
        judged: dict[str, Judgement] = {}
        for name, scenario in scenarios.items():
            if not self.only or name in self.only:
                judged[name] = await self._judge(scenario)
                self.note(f"{self.adapter.name:<26} {name:<10} {judged[name].verdict:<12} {judged[name].detail}")
        return judged

    async def _judge(self, scenario: Callable[[], Awaitable[Judgement]]) -> Judgement:
        try:
            return await scenario()
        except AgentFailed as problem:
            return judge.failed(str(problem))
        finally:
            while self._processes:
                await self._processes.pop().kill()

    async def _register_webhook(self) -> None:
        async with RingbackClient(self.stage.base_url) as client:
            await client.register_webhook(self.stage.receiver.url)

    def _open_process(self, folder: Path, variables: Mapping[str, str]) -> DriverProcess:
        """A process of the agent whose state is in this folder; it starts with its first command."""
        named = {"RINGBACK_URL": self.stage.base_url, "UPSTREAM": UPSTREAM, **variables}
        process = DriverProcess(self.environment, self.adapter.driver, folder / "agent.log", named)
        self._processes.append(process)
        return process

    def _open_session(self, keys: int, graph: str) -> AgentSession:
        name = f"session-{new_key()}"
        folder = self.folder / name
        folder.mkdir()
        process = self._open_process(folder, {GRAPH: graph})
        return AgentSession(
            stage=self.stage,
            name=name,
            folder=folder,
            client_session_id=self.adapter.client_session_id.format(session=name),
            open_process=self._open_process,
            process=process,
            keys=[new_key() for _ in range(keys)],
        )

    async def _park(
        self, tool: str = "slow", *, keys: int = 1, graph: str = "", arguments: Mapping[str, str] | None = None
    ) -> AgentSession:
        """A session whose agent has parked its calls, and was killed."""
        session = self._open_session(keys, graph)
        await session.ask(tool, arguments or {})
        await session.kill()
        return session

    async def _wake(self, tool: str, *, is_error: bool = False) -> Judgement:
        session = await self._park(tool)
        session.release(session.keys[0])
        said = await session.wake(await session.next_callback())
        runs = Runs(started=1, cancelled=1) if is_error else RAN_ONCE
        return self._judge_answers(session, said, is_error=is_error, runs=runs)

    async def _named(self) -> Judgement:
        session = await self._park("named", arguments=NAMED_ARGUMENTS)
        session.release(session.keys[0])
        said = await session.wake(await session.next_callback())
        return self._judge_answers(
            session, said, text=" ".join([outcome_of(session.keys[0]), *NAMED_ARGUMENTS.values()])
        )

    async def _duplicate(self) -> Judgement:
        session = await self._park()
        session.release(session.keys[0])
        callback = await session.next_callback()
        said = await session.wake(callback)
        again = await session.wake(callback)
        await session.kill()
        again += await session.wake(callback)
        if again:
            return judge.failed("a repeated callback ran the agent again")
        return self._judge_answers(session, said)

    async def _several(self, graph: str = "") -> Judgement:
        session = await self._park(keys=2, graph=graph)
        session.release(session.keys[0])
        early = await session.wake(await session.next_callback())
        if early:
            return judge.failed("the agent went on before all its calls had ended")
        await session.kill()
        session.release(session.keys[1])
        return self._judge_answers(session, await session.wake(await session.next_callback()))

    async def _at_once(self) -> Judgement:
        session = await self._park(keys=2)
        for key in session.keys:
            session.release(key)
        callbacks = [await session.next_callback() for _ in session.keys]
        return self._judge_answers(session, await session.wake(*callbacks))

    async def _two_processes(self) -> Judgement:
        session = await self._park(keys=2)
        other = session.with_process({})
        for key in session.keys:
            session.release(key)
        callbacks = [await session.next_callback() for _ in session.keys]
        said = [*await asyncio.gather(session.wake_when_taken(callbacks[0]), other.wake_when_taken(callbacks[1]))]
        answers = [answer for each in said for answer in each]
        return self._judge_answers(session, answers[-1:], model_runs=(2, 3))

    async def _died(self) -> Judgement:
        session = await self._park()
        session.release(session.keys[0])
        callback = await session.next_callback()
        dying = session.with_process({HANGS_AT: "2"})
        waking = asyncio.ensure_future(dying.process.exchange({"do": "wake", "callbacks": [callback]}))
        async with asyncio.timeout(AGENT_SECONDS):
            while session.count_model_runs() == 1 and not waking.done():  # noqa: ASYNC110 - in another process
                await asyncio.sleep(POLL_SECONDS)
        await dying.kill()
        await waking
        later = session.with_process({LATER: "1"})
        return self._judge_answers(session, await later.wake_when_taken(callback), model_runs=(3,))

    async def _failed(self) -> Judgement:
        session = await self._park()
        session.release(session.keys[0])
        callback = await session.next_callback()
        failing = session.with_process({FAILS_AT: "2"})
        try:
            return judge.failed(f"the failure of the model is not seen: {await failing.wake(callback)}")
        except AgentFailed as problem:
            if "the model does not respond" not in str(problem):
                raise
        return self._judge_answers(session, await session.wake_when_taken(callback), model_runs=(3,))

    async def _cancelled(self) -> Judgement:
        session = await self._park()
        async with RingbackClient(self.stage.base_url) as client:
            async for call in client.calls(client_session_id=session.client_session_id):
                await client.cancel(call.id)
        said = await session.wake(await session.next_callback())
        return self._judge_answers(
            session, said, is_error=True, text="was cancelled", runs=Runs(started=1, cancelled=1)
        )

    async def _question(self) -> Judgement:
        session = await self._park("asking")
        if await session.wake(await session.next_callback(INPUT_REQUIRED)):
            return judge.failed("the agent went on although the tool asks")
        await session.kill()
        question = await session.find_question()
        if "Which branch?" not in question:
            return judge.failed(f"the question is {question}")
        await session.answer(question, {"action": "accept", "content": {"branch": "main"}})
        await session.kill()
        session.release(session.keys[0])
        said = await session.wake(await session.next_callback())
        return self._judge_answers(session, said, text=f"{outcome_of(session.keys[0])} on main")

    async def _early(self) -> Judgement:
        session = await self._park()
        session.release(session.keys[0])
        callback = await session.next_callback()
        stored = self._hide_state(session)
        try:
            said = await session.wake(callback)
        except AgentFailed as problem:
            if NOT_PARKED_YET not in str(problem):
                raise
        else:
            return judge.failed(f"the callback was accepted: {said}")
        await session.kill()
        for file, content in stored.items():
            file.write_bytes(content)
        return self._judge_answers(session, await session.wake(callback))

    def _hide_state(self, session: AgentSession) -> dict[Path, bytes]:
        """Take away the agent's stored state, as before it was stored."""
        kept = {"agent.log", "model_runs.txt"}
        stored = {file: file.read_bytes() for file in session.folder.iterdir() if file.name not in kept}
        for file in stored:
            file.unlink()
        return stored

    def _judge_answers(
        self,
        session: AgentSession,
        said: Sequence[Sequence[Mapping[str, Any]]],
        *,
        is_error: bool = False,
        text: str | None = None,
        runs: Runs = RAN_ONCE,
        model_runs: Sequence[int] = (2,),
    ) -> Judgement:
        """One answer, after two responses of the model (the tool calls, and the answer), with each tool's outcome."""
        wanted = [text] if text is not None else [outcome_of(key) for key in session.keys]
        if len(said) != 1 or len(said[0]) != len(wanted):
            return judge.failed(f"the agent said {said}")
        for result, part in zip(said[0], wanted, strict=True):
            if part not in result["text"]:
                return judge.failed(f"the model has not read the outcome: {result['text']}")
            if result["is_error"] is not is_error:
                return judge.failed(f"the model reads {'no' if is_error else 'an'} error: {result['text']}")
        if session.count_model_runs() not in model_runs:
            return judge.failed(f"the model ran {session.count_model_runs()} times")
        wrong = [self.stage.runs(key) for key in session.keys if self.stage.runs(key) != runs]
        return judge.failed(f"the tool {judge.describe_runs(wrong[0])}") if wrong else judge.passed()

    async def _edges(self) -> Judgement:
        return await asyncio.to_thread(check_edges, self.adapter, self.environment, self.folder)

    async def _types(self) -> Judgement:
        return await asyncio.to_thread(check_types, self.adapter, self.environment, self.folder)
