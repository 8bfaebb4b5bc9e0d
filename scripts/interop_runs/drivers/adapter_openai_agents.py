"""The OpenAI Agents SDK's agent of scripts/examples/agents, with a scripted model."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import adapter_kit as kit
import openai_agents_agent as example
from agents import Model, ModelResponse, Usage, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import ringback.agents.openai_agents as adapter
from ringback.agents import CallState

QUESTIONS = Path("questions.jsonl")
ERROR = "An error occurred while running the tool."


class ScriptedModel(Model):
    """Calls the tools of the prompt. With their results, it says what it reads of them."""

    async def get_response(self, system_instructions: Any, input: Any, *more: Any, **named: Any) -> ModelResponse:  # noqa: A002
        del system_instructions, more, named
        kit.count_model_run()
        results = [item["output"] for item in input if item.get("type") == "function_call_output"]
        output = [say(results)] if results else call_tools(input[-1]["content"])
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError


def call_tools(prompt: str) -> list[Any]:
    return [
        ResponseFunctionToolCall(
            name=call["tool"], arguments=json.dumps(call["arguments"]), call_id=f"call_{number}", type="function_call"
        )
        for number, call in enumerate(json.loads(prompt))
    ]


def say(results: Sequence[Any]) -> ResponseOutputMessage:
    text = kit.describe_results([read_result(result) for result in results])
    part = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(id="1", content=[part], role="assistant", status="completed", type="message")


def read_result(result: Any) -> tuple[str, bool]:
    blocks = [{"text": result}] if isinstance(result, str) else result
    text = "\n".join(block["text"] for block in blocks)
    return text, text.startswith(ERROR)


class OpenAiAgentsAgent:
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


set_tracing_disabled(True)
adapter.LEASE_SECONDS = 2.0  # the row that kills a process does not wait a minute for its lease to lapse
example.agent.model = ScriptedModel()
example.show_question = show_question
kit.run(OpenAiAgentsAgent())
