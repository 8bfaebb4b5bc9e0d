"""openai-agents: an agent with a scripted model and `MCPServerStreamableHttp`; what counts is its next input."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kit
from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

set_tracing_disabled(True)


class ScriptedModel(Model):
    """Calls one tool, then ends and keeps the output that it was shown."""

    def __init__(self, tool: str, arguments: str) -> None:
        self._call = ResponseFunctionToolCall(name=tool, arguments=arguments, call_id="1", type="function_call")
        self.shown: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *more: Any, **named: Any) -> ModelResponse:  # noqa: A002
        del system_instructions, more, named
        outputs = [item for item in input if isinstance(item, dict) and item.get("type") == "function_call_output"]
        self.shown = [item["output"] for item in outputs]
        item: Any = self._call if not outputs else _end()
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError


def _end() -> ResponseOutputMessage:
    text = ResponseOutputText(text="done", type="output_text", annotations=[])
    return ResponseOutputMessage(id="1", content=[text], role="assistant", status="completed", type="message")


class OpenAiAgentsClient:
    def __init__(self, server: MCPServerStreamableHttp) -> None:
        self._server = server

    async def list_tools(self) -> list[str]:
        return [tool.name for tool in await self._server.list_tools()]

    async def call(
        self, tool: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None, on_progress: Callable[[], None]
    ) -> kit.Answer:
        del meta, on_progress
        model = ScriptedModel(tool, kit.json.dumps(arguments))
        await Runner.run(Agent(name="interop", model=model, mcp_servers=[self._server]), "go")
        return read_output(model.shown[0])


def read_output(output: Any) -> kit.Answer:
    if isinstance(output, str):
        return kit.Answer(text=output)
    blocks = output if isinstance(output, list) else [output]
    texts = [str(block.get("text", block)) for block in blocks]
    kinds = [str(block.get("type")).removeprefix("input_") for block in blocks]
    return kit.Answer(text="\n".join(texts), blocks=kinds)


@asynccontextmanager
async def open_client(job: kit.Job) -> AsyncGenerator[OpenAiAgentsClient]:
    async with MCPServerStreamableHttp(params={"url": job.url, "headers": dict(job.headers)}) as server:
        yield OpenAiAgentsClient(server)


kit.run(open_client)
