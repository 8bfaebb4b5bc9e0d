"""langchain-mcp-adapters: the tools of `MultiServerMCPClient`, each called as an agent's tool node calls it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kit
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.client import MultiServerMCPClient


class LangChainClient:
    def __init__(self, tools: list[BaseTool]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    async def list_tools(self) -> list[str]:
        return list(self._tools)

    async def call(
        self, tool: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None, on_progress: Callable[[], None]
    ) -> kit.Answer:
        del meta, on_progress
        message = await self._tools[tool].ainvoke({"type": "tool_call", "id": "1", "name": tool, "args": arguments})
        if isinstance(message.content, str):
            return kit.Answer(text=message.content, is_error=message.status == "error")
        answer = kit.read_provider_content(message.content)
        answer.is_error = message.status == "error"
        return answer


@asynccontextmanager
async def open_client(job: kit.Job) -> AsyncGenerator[LangChainClient]:
    connection: Any = {"transport": "streamable_http", "url": job.url, "headers": dict(job.headers)}
    yield LangChainClient(await MultiServerMCPClient({"stage": connection}).get_tools())


kit.run(open_client)
