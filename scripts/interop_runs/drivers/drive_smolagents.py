"""smolagents: the tools of `MCPClient`, each called as an agent's code calls it. They block, so a thread calls them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kit
from smolagents import MCPClient


class SmolAgentsClient:
    def __init__(self, tools: list[Any]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    async def list_tools(self) -> list[str]:
        return list(self._tools)

    async def call(
        self, tool: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None, on_progress: Callable[[], None]
    ) -> kit.Answer:
        del meta, on_progress
        return kit.Answer(text=str(await asyncio.to_thread(self._tools[tool], **arguments)))


@asynccontextmanager
async def open_client(job: kit.Job) -> AsyncGenerator[SmolAgentsClient]:
    parameters = {"url": job.url, "transport": "streamable-http", "headers": dict(job.headers)}
    client = await asyncio.to_thread(MCPClient, parameters, structured_output=False)
    try:
        yield SmolAgentsClient(client.get_tools())
    finally:
        await asyncio.to_thread(client.disconnect)


kit.run(open_client)
