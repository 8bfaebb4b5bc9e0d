"""strands-agents: `MCPClient.call_tool_async`, as an agent's tool executor calls it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import kit
from mcp.client.streamable_http import streamable_http_client
from strands.tools.mcp import MCPClient


class StrandsClient:
    def __init__(self, client: MCPClient) -> None:
        self._client = client

    async def list_tools(self) -> list[str]:
        return [tool.tool_name for tool in await asyncio.to_thread(self._client.list_tools_sync)]

    async def call(
        self, tool: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None, on_progress: Callable[[], None]
    ) -> kit.Answer:
        del meta, on_progress
        result = await self._client.call_tool_async(tool_use_id="1", name=tool, arguments=arguments)
        kinds = [next(iter(block)) for block in result["content"]]
        texts = [str(block.get("text", block)) for block in result["content"]]
        return kit.Answer(text="\n".join(texts), blocks=kinds, is_error=result["status"] == "error")


@asynccontextmanager
async def open_client(job: kit.Job) -> AsyncGenerator[StrandsClient]:
    http = httpx2.AsyncClient(headers=dict(job.headers)) if job.headers else None  # one of its own gives up after 5 s
    client = MCPClient(lambda: streamable_http_client(job.url, http_client=http))
    await asyncio.to_thread(client.__enter__)
    try:
        yield StrandsClient(client)
    finally:
        await asyncio.to_thread(client.__exit__, None, None, None)


kit.run(open_client)
