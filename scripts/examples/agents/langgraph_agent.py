"""A LangGraph agent whose slow tools run on Ringback. No process waits while they run.

python langgraph_agent.py ask SESSION "Build the report"   runs until the agent answers, or until it waits for its tools
python langgraph_agent.py wake < callback.json             another process: goes on with the tools' results

    pip install "ringback[langgraph]" langchain langgraph-checkpoint-sqlite   # and the package of your model's provider
    ringback listen --exec "python langgraph_agent.py wake"

RINGBACK_URL and RINGBACK_API_KEY are Ringback's, UPSTREAM is the MCP server behind it, and AGENT_MODEL a model's name.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType] - its types are incomplete
from langchain_core.language_models import BaseChatModel
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from ringback.agents.langgraph import load_tools, wake
from ringback.client import RingbackClient

model: str | BaseChatModel = os.environ.get("AGENT_MODEL", "")
ringback = RingbackClient(os.environ["RINGBACK_URL"], api_key=os.environ.get("RINGBACK_API_KEY"))


@asynccontextmanager
async def open_graph() -> AsyncGenerator[Any]:
    """The agent. Its state is in a SQLite file."""
    async with AsyncSqliteSaver.from_conn_string("checkpoints.db") as checkpointer:
        tools = await load_tools(ringback, os.environ["UPSTREAM"], accepts_input=True)
        yield create_agent(model, tools, checkpointer=checkpointer)


async def ask(session: str, prompt: str) -> str | None:
    """The agent's answer, or None while its tools run."""
    async with open_graph() as graph:
        config = {"configurable": {"thread_id": session}}
        return read_answer(await graph.ainvoke({"messages": [{"role": "user", "content": prompt}]}, config))


async def wake_up(callback: Mapping[str, Any] | bytes) -> str | None:
    """The agent's answer, or None if there is nothing to do (yet)."""
    async with open_graph() as graph:
        return read_answer(await wake(graph, callback, ringback))


async def answer_question(session: str, interrupt_id: str, answers: Mapping[str, Any]) -> str | None:
    """Resume with a person's answers to a tool's question, as for any interrupt."""
    async with open_graph() as graph:
        config = {"configurable": {"thread_id": session}}
        return read_answer(await graph.ainvoke(Command(resume={interrupt_id: answers}), config))


def read_answer(state: Any) -> str | None:
    """The agent's last message. An interrupted graph has none; if a tool asks, its interrupts have the questions."""
    if state is None:
        return None
    for waiting in state.get("__interrupt__", ()):
        print(waiting.id, waiting.value.get("input_requests", "waits"))
    return None if state.get("__interrupt__") else str(state["messages"][-1].text)


async def main(command: str, *arguments: str) -> None:
    async with ringback:
        answer = await (ask(*arguments) if command == "ask" else wake_up(sys.stdin.buffer.read()))
        print(answer or "waits")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
