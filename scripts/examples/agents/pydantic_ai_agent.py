"""A Pydantic AI agent whose slow tools run on Ringback. No process waits while they run.

python pydantic_ai_agent.py ask SESSION "Build the report"   runs until the agent answers, or until it waits for its tools
python pydantic_ai_agent.py wake < callback.json             another process: goes on with the tools' results

    pip install "ringback[pydantic-ai]"   # and the extra of pydantic-ai-slim for your model's provider
    ringback listen --exec "python pydantic_ai_agent.py wake"

RINGBACK_URL and RINGBACK_API_KEY are Ringback's, UPSTREAM is the MCP server behind it, and AGENT_MODEL a model's name.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic_ai import Agent, AgentRunResult, DeferredToolRequests
from pydantic_ai.conversation import Conversation, ConversationTypeAdapter

from ringback.agents import CallState
from ringback.agents.pydantic_ai import RingbackToolset, wake
from ringback.client import RingbackClient

ringback = RingbackClient(os.environ["RINGBACK_URL"], api_key=os.environ.get("RINGBACK_API_KEY"))
tools = RingbackToolset(ringback, os.environ["UPSTREAM"], accepts_input=True)
agent = Agent(os.environ.get("AGENT_MODEL"), toolsets=[tools], output_type=[str, DeferredToolRequests])


class ConversationFiles:
    """One JSON file for each conversation. Yours is a table, or a `ConversationStore` of Pydantic AI."""

    async def load(self, conversation_id: str) -> Conversation | None:
        file = self._file(conversation_id)
        return ConversationTypeAdapter.validate_json(file.read_bytes()) if file.exists() else None

    async def save(self, result: AgentRunResult[Any]) -> None:
        conversation = result.conversation
        file = self._file(conversation.conversation_id)
        partial = file.with_suffix(".partial")
        partial.write_bytes(ConversationTypeAdapter.dump_json(conversation))
        partial.replace(file)  # at once: a process that is killed in between leaves the earlier conversation

    def _file(self, conversation_id: str) -> Path:
        return Path(f"conversation-{quote(conversation_id, safe='')}.json")


conversations = ConversationFiles()


async def ask(session: str, prompt: str) -> str | None:
    """The agent's answer, or None while its tools run."""
    conversation = await conversations.load(session) or Conversation(conversation_id=session)
    result = await agent.run(prompt, conversation=conversation)
    await conversations.save(result)
    return result.output if isinstance(result.output, str) else None


async def wake_up(callback: Mapping[str, Any] | bytes) -> str | None:
    """The agent's answer, or None if there is nothing to do (yet)."""
    result = await wake(agent, conversations, callback, ringback, ask=show_question)
    return result.output if result is not None and isinstance(result.output, str) else None


async def show_question(state: CallState) -> None:
    """Show a tool's question to a person. Their answer goes to `ringback.answer(call_id, …)`, also days later."""
    print(state.call_id, state.input_requests)


async def main(command: str, *arguments: str) -> None:
    async with ringback:
        answer = await (ask(*arguments) if command == "ask" else wake_up(sys.stdin.buffer.read()))
        print(answer or "waits")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
