"""An agent of the OpenAI Agents SDK whose slow tools run on Ringback. No process waits while they run.

python openai_agents_agent.py ask SESSION "Build the report"   runs until the agent answers, or until it waits for its tools
python openai_agents_agent.py wake < callback.json             another process: goes on with the tools' results

    pip install "ringback[openai-agents]"
    ringback listen --url "$RINGBACK_URL" --exec "python openai_agents_agent.py wake"

RINGBACK_URL and RINGBACK_API_KEY are Ringback's, UPSTREAM is the MCP server behind it, and OPENAI_DEFAULT_MODEL a model's name.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Any

from agents import Agent, RunResult, SQLiteSession

from ringback.agents import CallState
from ringback.agents.openai_agents import DurableRunner, SQLiteParkedRuns
from ringback.client import RingbackClient

ringback = RingbackClient(os.environ["RINGBACK_URL"], api_key=os.environ.get("RINGBACK_API_KEY"))
runs = SQLiteParkedRuns("runs.db")
runner = DurableRunner(ringback, runs, open_session=lambda name: SQLiteSession(name, "history.db"), accepts_input=True)
agent = Agent[None](name="analyst")


def read_answer(result: RunResult | None) -> str | None:
    return None if result is None or result.interruptions else str(result.final_output)


async def ask(session: str, prompt: str) -> str | None:
    """The agent's answer, or None while its tools run."""
    agent.tools = [*await runner.load_tools(os.environ["UPSTREAM"])]
    return read_answer(await runner.run(agent, prompt, client_session_id=session))


async def wake_up(callback: Mapping[str, Any] | bytes) -> str | None:
    """The agent's answer, or None if there is nothing to do (yet)."""
    agent.tools = [*await runner.load_tools(os.environ["UPSTREAM"])]
    return read_answer(await runner.wake(agent, callback, ask=show_question))


async def show_question(state: CallState) -> None:
    """Show a tool's question to a person. Their answer goes to `ringback.answer(call_id, …)`, also days later."""
    print(state.call_id, state.input_requests)


async def main(command: str, *arguments: str) -> None:
    async with ringback:
        answer = await (ask(*arguments) if command == "ask" else wake_up(sys.stdin.buffer.read()))
        print(answer or "waits")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
