"""crewai-tools: the tools of `MCPServerAdapter`, each run as a crew runs it. They block, so a thread runs them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kit
from crewai_tools import MCPServerAdapter


class CrewAiClient:
    def __init__(self, tools: Any) -> None:
        self._tools = {tool.name: tool for tool in tools}

    async def list_tools(self) -> list[str]:
        return list(self._tools)

    async def call(
        self, tool: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None, on_progress: Callable[[], None]
    ) -> kit.Answer:
        del meta, on_progress
        return kit.Answer(text=str(await asyncio.to_thread(self._tools[tool].run, **arguments)))


@asynccontextmanager
async def open_client(job: kit.Job) -> AsyncGenerator[CrewAiClient]:
    parameters = {"url": job.url, "transport": "streamable-http", "headers": dict(job.headers)}
    adapter = await asyncio.to_thread(MCPServerAdapter, parameters)
    try:
        yield CrewAiClient(adapter.tools)
    finally:
        await asyncio.to_thread(adapter.stop)


kit.run(open_client)
