"""The LangGraph agent of scripts/examples/agents, with a scripted model."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import adapter_kit as kit
import langgraph_agent as example
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class ScriptedModel(BaseChatModel):
    """Calls the tools of the prompt. With their results, says what the model reads of them."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_arguments: Any, **_options: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_arguments: Any, **_options: Any) -> ChatResult:
        kit.count_model_run()
        return ChatResult(generations=[ChatGeneration(message=respond(messages))])


def respond(messages: Sequence[BaseMessage]) -> AIMessage:
    results = [message for message in messages if isinstance(message, ToolMessage)]
    if results:
        return AIMessage(kit.describe_results([(str(each.text), each.status == "error") for each in results]))
    prompt = next(message for message in messages if isinstance(message, HumanMessage))
    calls = enumerate(json.loads(str(prompt.text)))
    return AIMessage(
        "", tool_calls=[{"name": call["tool"], "args": call["arguments"], "id": f"tool-{i}"} for i, call in calls]
    )


class LangGraphAgent:
    async def ask(self, session: str, prompt: str) -> str:
        return await example.ask(session, prompt) or ""

    async def wake(self, callback: Mapping[str, Any]) -> str:
        return await example.wake_up(callback) or ""

    async def questions(self) -> Sequence[Mapping[str, Any]]:
        """The interrupts of the thread: what an application shows to a person."""
        session = kit.read_lines(kit.SESSION)[0]
        async with example.open_graph() as graph:
            snapshot = await graph.aget_state({"configurable": {"thread_id": session}})
            return [{"id": each.id, **each.value} for each in snapshot.interrupts if "input_requests" in each.value]

    async def answer(self, question: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
        session = kit.read_lines(kit.SESSION)[0]
        answers = dict.fromkeys(question["input_requests"], answer)
        return await example.answer_question(session, question["id"], answers) or ""


example.model = ScriptedModel()
kit.run(LangGraphAgent())
