"""The Pydantic AI agent of scripts/examples/agents, with a scripted model."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import adapter_kit as kit
import pydantic_ai_agent as example
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from ringback.agents import CallState

QUESTIONS = Path("questions.jsonl")


def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tools of the prompt. With their results, say what the model reads of them."""
    del info
    kit.count_model_run()
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    results = [part for part in last.parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
    if results:
        return ModelResponse(parts=[TextPart(kit.describe_results([read_result(part) for part in results]))])
    prompt = next(part for part in last.parts if isinstance(part, UserPromptPart))
    calls = json.loads(str(prompt.content))
    return ModelResponse(parts=[ToolCallPart(call["tool"], call["arguments"]) for call in calls])


def read_result(part: ToolReturnPart | RetryPromptPart) -> tuple[str, bool]:
    if isinstance(part, RetryPromptPart):
        return part.model_response(), True
    return part.model_response_str(), part.outcome != "success"


class PydanticAiAgent:
    async def ask(self, session: str, prompt: str) -> str:
        return await example.ask(session, prompt) or ""

    async def wake(self, callback: Mapping[str, Any]) -> str:
        return await example.wake_up(callback) or ""

    async def questions(self) -> Sequence[Mapping[str, Any]]:
        return [json.loads(line) for line in kit.read_lines(QUESTIONS)]

    async def answer(self, question: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
        await example.ringback.answer(question["call_id"], dict.fromkeys(question["input_requests"], answer))
        return ""


async def show_question(state: CallState) -> None:
    kit.append_line(QUESTIONS, json.dumps({"call_id": state.call_id, "input_requests": dict(state.input_requests)}))


example.agent.model = FunctionModel(respond)
example.show_question = show_question
kit.run(PydanticAiAgent())
