"""The scenarios of one adapter. In each, the agent's process is killed after parking, and another one wakes it.

wake        the model reads the tool's real result, and the tool has run once
typed       the same for a tool with an outputSchema
named       the same for a tool whose arguments are called as arguments of frameworks are
duplicate   a repeated callback runs nothing, in the same process and in another
several     two calls of one run: the first callback may not go on, the second one does
at once     two calls of one run whose callbacks come at the same moment
processes   the same in two processes; the model may answer twice, but no answer is lost
died        the process that wakes is killed too, while its model runs; the callback comes again, and the agent answers
tool error  the model reads the tool's error as a tool error
cancelled   the model reads that the call was cancelled, as a tool error
question    a tool's question reaches the framework's human side; its answer, given by another process, reaches the tool
early       a callback before the agent's state is stored is refused; it wakes the agent when it comes again
edges       what else the framework can do with parked calls: `drivers/edges_….py`, with a fake Ringback
types       pyright, strict, in the environment of the framework
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from ringback.client import RingbackClient
from scripts.interop_runs import judge
from scripts.interop_runs.adapter_upstream import release_file
from scripts.interop_runs.adapters import Adapter
from scripts.interop_runs.driver_process import DriverProcess
from scripts.interop_runs.environments import Environment
from scripts.interop_runs.judge import Judgement, Runs, outcome_of
from scripts.interop_runs.scenarios import new_key, wait_until
from scripts.interop_runs.stage import UPSTREAM, Stage

ROOT: Final = Path(__file__).resolve().parents[2]
PYRIGHT_SECONDS: Final = 600.0
EDGES_SECONDS: Final = 600.0
AGENT_SECONDS: Final = 120.0
"""For the start of an agent's process and one response of its model, on a busy machine."""
POLL_SECONDS: Final = 0.2
ADAPTER_SERVER: Final = (sys.executable, "-m", "scripts.interop_runs.adapter_upstream")
RAN_ONCE: Final = Runs(started=1, finished=1)
NAMED_ARGUMENTS: Final = {"config": "c", "runtime": "r", "run_manager": "m", "tool_context": "t"}
GRAPH: Final = "AGENT_GRAPH"
"""The variable that selects one of the driver's agents."""
HANGS_AT: Final = "AGENT_HANGS_AT"
"""The variable with the number of the response at which the scripted model hangs."""
LATER: Final = "AGENT_LATER"
"""The variable of a process whose clock is an hour ahead: a process that was at work before has died."""
FINISHED: Final = "call.finished"
INPUT_REQUIRED: Final = "call.input_required"
NOT_PARKED_YET: Final = "NotParkedYet"


class AgentFailed(Exception):
    """The agent did something else than it should; the message is the judgement's detail."""


@dataclass(slots=True, kw_only=True)
class AgentSession:
    """One conversation of the agent, in a folder of its own, and the processes that serve it."""

    run: "AdapterRun"
    name: str
    folder: Path
    process: DriverProcess
    keys: Sequence[str]
    seen: int = 0
    """The callbacks of this session that were taken."""

    @property
    def client_session_id(self) -> str:
        return self.run.adapter.client_session_id.format(session=self.name)

    async def ask(self, tool: str, arguments: Mapping[str, str]) -> None:
        """The agent calls the tool once for each key, and parks."""
        calls = [{"tool": tool, "arguments": {"key": key, **arguments}} for key in self.keys]
        said = await self._exchange({"do": "ask", "session": self.name, "calls": calls})
        if said["text"]:
            raise AgentFailed(f"the agent did not park: {said['text']}")

    def with_process(self, variables: Mapping[str, str]) -> "AgentSession":
        """The same conversation in another process."""
        return replace(self, process=self.run.open_process(self.folder, variables))

    async def kill(self) -> None:
        """End the agent's process as a crash does. The next command starts another one."""
        await self.process.kill()

    def release(self, key: str) -> None:
        release_file(self.run.stage.ledger, key).touch()

    async def next_callback(self, name: str = FINISHED) -> Mapping[str, Any]:
        """The session's next callback."""
        await wait_until(lambda: len(self._callbacks()) > self.seen)
        found = self._callbacks()[self.seen :]
        if not found or found[0]["name"] != name:
            raise AgentFailed(f"no callback {name} arrived, but {[each['name'] for each in found]}")
        self.seen += 1
        return {member: value for member, value in found[0].items() if member != "path"}

    async def wake(self, *callbacks: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
        """What the model has read of the tools' results, for each callback after which it ran to its answer."""
        said = await self._exchange({"do": "wake", "callbacks": list(callbacks)})
        return [json.loads(text) for text in said["texts"] if text]

    async def wake_when_taken(self, callback: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
        """`wake`, again and again while the callback is refused, as its sender does."""
        async with asyncio.timeout(AGENT_SECONDS):
            while True:
                try:
                    return await self.wake(callback)
                except AgentFailed as problem:
                    if NOT_PARKED_YET not in str(problem):
                        raise
                    await asyncio.sleep(POLL_SECONDS)

    async def find_question(self) -> str:
        said = await self._exchange({"do": "questions"})
        if len(said["texts"]) != 1:
            raise AgentFailed(f"the person was shown {len(said['texts'])} questions")
        return str(said["texts"][0])

    async def answer(self, question: str, answer: Mapping[str, Any]) -> None:
        """The person's answer, an ElicitResult."""
        await self._exchange({"do": "answer", "question": question, "answer": answer})

    def count_model_runs(self) -> int:
        return len((self.folder / "model_runs.txt").read_text(encoding="utf-8").splitlines())

    async def _exchange(self, command: Mapping[str, Any]) -> dict[str, Any]:
        said = await self.process.exchange(command)
        if "raised" in said:
            raise AgentFailed(f"raised {said['raised']}")
        return said

    def _callbacks(self) -> list[dict[str, Any]]:
        received = self.run.stage.receiver.callbacks
        return [each for each in received if each["data"].get("client_session_id") == self.client_session_id]


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

    def open_process(self, folder: Path, variables: Mapping[str, str]) -> DriverProcess:
        """A process of the agent whose state is in this folder; it starts with its first command."""
        named = {"RINGBACK_URL": self.stage.base_url, "UPSTREAM": UPSTREAM, **variables}
        process = DriverProcess(self.environment, self.adapter.driver, folder / "agent.log", named)
        self._processes.append(process)
        return process

    def _open_session(self, keys: int, graph: str) -> AgentSession:
        name = f"session-{new_key()}"
        folder = self.folder / name
        folder.mkdir()
        process = self.open_process(folder, {GRAPH: graph})
        return AgentSession(run=self, name=name, folder=folder, process=process, keys=[new_key() for _ in range(keys)])

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


def check_edges(adapter: Adapter, environment: Environment, folder: Path) -> Judgement:
    """Run the checks of the framework in its environment; their output is in edges.log."""
    log = folder / "edges.log"
    with log.open("wb") as output:
        done = subprocess.run(
            [*environment.command(adapter.edges.name)],
            stdout=output,
            stderr=output,
            env=environment.variables(),
            timeout=EDGES_SECONDS,
            check=False,
            cwd=folder,
        )
    last_line = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    return judge.passed() if done.returncode == 0 else judge.failed("".join(last_line))


def check_types(adapter: Adapter, environment: Environment, folder: Path) -> Judgement:
    """Run pyright of this environment on the adapter and its example, with the packages of the framework's environment."""
    settings = {
        "include": [os.path.relpath(ROOT / file, folder) for file in adapter.typed_files],  # absolute paths are ignored
        "extraPaths": [str(ROOT / "app")],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [
        str(Path(sys.executable).with_name("pyright")),
        "--outputjson",
        "--pythonpath",
        str(environment.bin / "python"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PYRIGHT_SECONDS, check=False, cwd=folder)
    (folder / "pyright.json").write_text(done.stdout, encoding="utf-8")
    report: dict[str, Any] = json.loads(done.stdout)
    if report["summary"]["filesAnalyzed"] != len(adapter.typed_files):
        return judge.failed(f"pyright checked {report['summary']['filesAnalyzed']} files")
    errors = [each for each in report["generalDiagnostics"] if each["severity"] == "error"]
    return judge.failed(f"{len(errors)} errors: {errors[0]['message']}") if errors else judge.passed()
