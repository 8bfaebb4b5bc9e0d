"""The loop of an adapter's driver: the agent of an example, with a scripted model, as a process that can be killed.

Commands are JSON lines on standard input; each gets one JSON line on standard output:

    {"do": "ask", "session", "calls": [{"tool", "arguments"}]}   {"text": what the agent said; empty if it is parked}
    {"do": "wake", "callbacks": [body, …]}                       {"texts": what it said after each; empty if nothing ran}
    {"do": "questions"}                                          {"texts": the questions that a person was shown, as JSON}
    {"do": "answer", "question": JSON, "answer": ElicitResult}   {"text"}: a person's answer

The scripted model calls the tools of the prompt. Once it has their results, it says `describe_results`: what it reads of them.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "app"), str(ROOT / "scripts/examples/agents")]  # the checkout, not the installed copy

MODEL_RUNS = Path("model_runs.txt")
HANG_SECONDS = 600.0
"""Until the process is killed."""
SESSION = Path("session.txt")
"""The session of the folder's agent."""


class Agent(Protocol):
    """One example. It keeps its state in the working directory."""

    async def ask(self, session: str, prompt: str) -> str: ...

    async def wake(self, callback: Mapping[str, Any]) -> str: ...

    async def questions(self) -> Sequence[Mapping[str, Any]]: ...

    async def answer(self, question: Mapping[str, Any], answer: Mapping[str, Any]) -> str: ...


def describe_results(results: Sequence[tuple[str, bool]]) -> str:
    """What the scripted model says: the text of each tool's result, and whether the framework shows it as an error."""
    return json.dumps([{"text": text, "is_error": is_error} for text, is_error in results])


def count_model_run() -> None:
    """Record one response of the model, so that a second wake that runs it is noticed. Fail or hang if this one is to."""
    append_line(MODEL_RUNS, "run")
    number = str(len(read_lines(MODEL_RUNS)))
    if os.environ.get("AGENT_FAILS_AT") == number:
        raise RuntimeError("the model does not respond")
    if os.environ.get("AGENT_HANGS_AT") == number:
        time.sleep(HANG_SECONDS)


def append_line(file: Path, line: str) -> None:
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"{line}\n")


def read_lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def run(agent: Agent) -> None:
    """Serve commands until standard input ends. An agent's state outlives the process in the working directory."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # frameworks print to standard output
    asyncio.run(_serve(agent, answers))
    os._exit(0)  # threads of a framework do not delay the exit


async def _serve(agent: Agent, answers: Any) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            said = await _perform(agent, json.loads(line))
        except Exception as problem:  # noqa: BLE001 - what the agent raises is what its user sees
            said = {"raised": f"{type(problem).__name__}: {problem}"[:600]}
        answers.write(json.dumps(said) + "\n")
        answers.flush()


async def _perform(agent: Agent, command: dict[str, Any]) -> dict[str, Any]:
    match command["do"]:
        case "ask":
            append_line(SESSION, command["session"])
            return {"text": await agent.ask(command["session"], json.dumps(command["calls"]))}
        case "wake":
            said = await asyncio.gather(*(agent.wake(body) for body in command["callbacks"]))
            return {"texts": said}
        case "questions":
            return {"texts": [json.dumps(question) for question in await agent.questions()]}
        case _:
            return {"text": await agent.answer(json.loads(command["question"]), command["answer"])}
