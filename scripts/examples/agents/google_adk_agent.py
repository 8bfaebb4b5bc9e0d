"""An agent of Google's ADK whose slow tools run on Ringback. No process waits while they run.

python google_adk_agent.py ask SESSION "Build the report"   runs until the agent answers, or until it waits for its tools
python google_adk_agent.py wake < callback.json             another process: goes on with the tools' results

    pip install "ringback[google-adk]"
    ringback listen --url "$RINGBACK_URL" --exec "python google_adk_agent.py wake"

RINGBACK_URL and RINGBACK_API_KEY are Ringback's, UPSTREAM is the MCP server behind it, and AGENT_MODEL a model's name.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from ringback.agents import CallState
from ringback.agents.google_adk import RingbackToolset, read_final_text, wake
from ringback.client import RingbackClient

ringback = RingbackClient(os.environ["RINGBACK_URL"], api_key=os.environ.get("RINGBACK_API_KEY"))
tools = RingbackToolset(ringback, os.environ["UPSTREAM"], accepts_input=True)
agent = LlmAgent(name="analyst", model=os.environ.get("AGENT_MODEL", "gemini-3.5-flash"), tools=[tools])
sessions = SqliteSessionService("sessions.db")
runner = Runner(app_name="reports", agent=agent, session_service=sessions, auto_create_session=True)


async def ask(session: str, prompt: str) -> str | None:
    """The agent's answer. While its tools run, it says so."""
    message = types.Content(role="user", parts=[types.Part(text=prompt)])
    events = [event async for event in runner.run_async(user_id="user", session_id=session, new_message=message)]
    return read_final_text(events)


async def wake_up(callback: Mapping[str, Any] | bytes) -> str | None:
    """The agent's answer, or None if there is nothing to do (yet)."""
    events = await wake(runner, callback, ringback, ask=show_question)
    return None if events is None else read_final_text(events)


async def show_question(state: CallState) -> None:
    """Show a tool's question to a person. Their answer goes to `ringback.answer(call_id, …)`, also days later."""
    print(state.call_id, state.input_requests)


async def main(command: str, *arguments: str) -> None:
    async with ringback:
        answer = await (ask(*arguments) if command == "ask" else wake_up(sys.stdin.buffer.read()))
        print(answer or "waits")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
