"""agent-framework: the functions of `MCPStreamableHTTPTool`, each invoked as an agent invokes it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kit
from agent_framework import MCPStreamableHTTPTool


class AgentFrameworkClient:
    def __init__(self, tool: MCPStreamableHTTPTool) -> None:
        self._tool = tool

    def _functions(self) -> dict[str, Any]:
        return {function.name: function for function in self._tool.functions}

    async def list_tools(self) -> list[str]:
        return list(self._functions())

    async def call(
        self, tool: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None, on_progress: Callable[[], None]
    ) -> kit.Answer:
        del meta, on_progress
        result = await self._functions()[tool].invoke(arguments=arguments)
        if isinstance(result, str):
            return kit.Answer(text=result)
        return kit.read_provider_content(list(result))


@asynccontextmanager
async def open_client(job: kit.Job) -> AsyncGenerator[AgentFrameworkClient]:
    async with MCPStreamableHTTPTool(name="stage", url=job.url, static_headers=dict(job.headers)) as tool:
        yield AgentFrameworkClient(tool)


kit.run(open_client)
