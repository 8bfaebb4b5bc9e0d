"""autogen-ext[mcp]: the tools of `mcp_server_tools` in a `StaticWorkbench`, through which an AssistantAgent calls its tools."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kit
from autogen_core import CancellationToken
from autogen_core.tools import StaticWorkbench
from autogen_ext.tools.mcp import StreamableHttpServerParams, mcp_server_tools


class AutoGenClient:
    def __init__(self, tools: list[Any]) -> None:
        self._workbench = StaticWorkbench(tools)

    async def list_tools(self) -> list[str]:
        return [tool["name"] for tool in await self._workbench.list_tools()]

    async def call(
        self, tool: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None, on_progress: Callable[[], None]
    ) -> kit.Answer:
        del meta, on_progress
        result = await self._workbench.call_tool(tool, arguments, CancellationToken())
        return kit.Answer(text=result.to_text(), is_error=result.is_error)


@asynccontextmanager
async def open_client(job: kit.Job) -> AsyncGenerator[AutoGenClient]:
    yield AutoGenClient(await mcp_server_tools(StreamableHttpServerParams(url=job.url, headers=dict(job.headers))))


kit.run(open_client)
