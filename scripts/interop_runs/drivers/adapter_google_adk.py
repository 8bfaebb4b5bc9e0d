"""The ADK agent of scripts/examples/agents, with a scripted model."""

import json
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import adapter_kit as kit
import google_adk_agent as example
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types

from ringback.agents import CallState
from ringback.agents.google_adk import wake
from ringback.agents.wake_up import current_time

QUESTIONS = Path("questions.jsonl")


class ScriptedModel(BaseLlm):
    """Calls the tools of the prompt. With their results, it says what it reads of them."""

    model: str = "scripted"

    async def generate_content_async(self, llm_request: LlmRequest, stream: Any = None) -> AsyncGenerator[LlmResponse]:
        del stream
        kit.count_model_run()
        contents = llm_request.contents
        shown = [part.function_response for each in contents for part in each.parts or [] if part.function_response]
        results = [each.response or {} for each in shown]
        if not results:
            parts = call_tools(contents)
        elif all(result.get("status") == "pending" for result in results):
            parts = [types.Part(text="")]
        else:
            parts = [types.Part(text=kit.describe_results([read_result(result) for result in results]))]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def call_tools(contents: Sequence[types.Content]) -> list[types.Part]:
    prompt = (contents[-1].parts or [])[0].text or ""
    return [
        types.Part(function_call=types.FunctionCall(name=call["tool"], args=call["arguments"]))
        for call in json.loads(prompt)
    ]


def read_result(result: Mapping[str, Any]) -> tuple[str, bool]:
    if "error" in result:
        return str(result["error"]), True
    blocks = result.get("content") or []
    return "\n".join(str(block.get("text", "")) for block in blocks), bool(result.get("isError"))


class AdkAgent:
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


if os.environ.get("AGENT_LATER"):
    example.wake = partial(wake, clock=lambda: current_time() + timedelta(hours=1))
example.agent.model = ScriptedModel()
example.show_question = show_question
kit.run(AdkAgent())
