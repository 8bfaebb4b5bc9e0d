"""autogen-ext[mcp]: the tools of `mcp_server_tools`, each run as an AssistantAgent runs it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kit
from autogen_core import CancellationToken
from autogen_ext.tools.mcp import StreamableHttpServerParams, mcp_server_tools


class AutoGenClient:
    def __init__(self, tools: list[Any]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    async def list_tools(self) -> list[str]:
        return list(self._tools)

    async def call(
        self, tool: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None, on_progress: Callable[[], None]
    ) -> kit.Answer:
        del meta, on_progress
        value = await self._tools[tool].run_json(arguments, CancellationToken())
        return kit.Answer(text=self._tools[tool].return_value_as_string(value))


@asynccontextmanager
async def open_client(job: kit.Job) -> AsyncGenerator[AutoGenClient]:
    yield AutoGenClient(await mcp_server_tools(StreamableHttpServerParams(url=job.url, headers=dict(job.headers))))


kit.run(open_client)
