"""llama-index-tools-mcp: the tools of `McpToolSpec`, each called as an agent calls it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kit
from llama_index.core.tools import FunctionTool
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec


class LlamaIndexClient:
    def __init__(self, tools: list[FunctionTool]) -> None:
        self._tools = {str(tool.metadata.name): tool for tool in tools}

    async def list_tools(self) -> list[str]:
        return list(self._tools)

    async def call(
        self, tool: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None, on_progress: Callable[[], None]
    ) -> kit.Answer:
        del meta, on_progress
        output = await self._tools[tool].acall(**arguments)
        return kit.Answer(text=output.content, is_error=bool(output.is_error))


@asynccontextmanager
async def open_client(job: kit.Job) -> AsyncGenerator[LlamaIndexClient]:
    client = BasicMCPClient(job.url, headers=dict(job.headers))
    yield LlamaIndexClient(await McpToolSpec(client).to_tool_list_async())


kit.run(open_client)
