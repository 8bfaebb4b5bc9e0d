"""What the checks of the OpenAI Agents adapter share: runners on a fake Ringback, calls of its model, and wakes."""

from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, Final

from agents import Agent, RunResult, SQLiteSession, Tool
from agents.testing import ScriptedModel, assistant_message, function_call
from fake_ringback import UPSTREAM, FakeRingback

from ringback.agents.openai_agents import DurableRunner, SQLiteParkedRuns

OK: Final = [assistant_message("ok")]
"""The last turn of a model."""


class Desk:
    """A fake Ringback, a store, and runners on them: each stands for a process."""

    def __init__(self, folder: Path) -> None:
        self.ringback = FakeRingback()
        self.folder = folder

    def runner(self) -> DurableRunner:
        runs = SQLiteParkedRuns(self.folder / "runs.db")
        return DurableRunner(
            self.ringback.client(), runs, open_session=lambda name: SQLiteSession(name, self.folder / "history.db")
        )


def call(tool: str, call_id: str = "call_a", arguments: str = '{"key": "k"}') -> Any:
    return function_call(tool, arguments, call_id=call_id)


async def build_agent(
    runner: DurableRunner, *turns: list[Any], tools: Sequence[Tool] = ()
) -> tuple[Agent[Any], ScriptedModel]:
    """An agent with these tools and the upstream's, and its model, which answers with these turns."""
    model = ScriptedModel(list(turns))
    return Agent(name="a", model=model, tools=[*tools, *await runner.load_tools(UPSTREAM)]), model


def outputs(model: ScriptedModel) -> list[Any]:
    """What the model has read of its tools in its last call."""
    assert model.last_call is not None
    return [item["output"] for item in model.last_call.input if item.get("type") == "function_call_output"]


def find_output(result: RunResult | None) -> Any:
    return None if result is None else result.final_output


async def read_error(kind: type[Exception], work: Awaitable[Any]) -> str:
    try:
        await work
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__} was raised")


async def wake(desk: Desk, agent: Agent[Any], index: int, **options: Any) -> RunResult | None:
    """Wake the agent in another process after the end of a call."""
    started = desk.ringback.started[index]
    desk.ringback.end(started)
    runner = desk.runner()
    await runner.load_tools(UPSTREAM)
    return await runner.wake(agent, desk.ringback.callback(started), **options)
