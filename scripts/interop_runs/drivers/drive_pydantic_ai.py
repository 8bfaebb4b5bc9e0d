"""pydantic-ai: an agent with a scripted model and `MCPToolset`; what counts is the tool's return part in its next request."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kit
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


class PydanticAiClient:
    def __init__(self, toolset: Any) -> None:
        self._toolset = toolset

    async def list_tools(self) -> list[str]:
        return [tool.name for tool in await self._toolset.list_tools()]

    async def call(
        self, tool: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None, on_progress: Callable[[], None]
    ) -> kit.Answer:
        del meta, on_progress
        shown: list[kit.Answer] = []

        def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            del info
            for part in messages[-1].parts:
                if isinstance(part, ToolReturnPart):
                    shown.append(kit.Answer(text=part.model_response_str()))
                elif isinstance(part, RetryPromptPart):
                    shown.append(kit.Answer(text=part.model_response(), is_error=True))
            return ModelResponse(parts=[TextPart("done") if shown else ToolCallPart(tool, arguments)])

        await Agent(FunctionModel(respond), toolsets=[self._toolset]).run("go")
        return shown[0]


@asynccontextmanager
async def open_client(job: kit.Job) -> AsyncGenerator[PydanticAiClient]:
    async with MCPToolset(job.url, headers=dict(job.headers)) as toolset:
        yield PydanticAiClient(toolset)


kit.run(open_client)
