"""FastMCP's client, 2.x and 4.x: `Client.call_tool`."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kit
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.exceptions import ToolError


class FastMcpClient:
    def __init__(self, client: Client[Any]) -> None:
        self._client = client

    async def list_tools(self) -> list[str]:
        return [tool.name for tool in await self._client.list_tools()]

    async def call(
        self, tool: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None, on_progress: Callable[[], None]
    ) -> kit.Answer:
        named = {"meta": meta} if meta else {}
        try:
            result = await self._client.call_tool(tool, arguments, progress_handler=kit.counting(on_progress), **named)
        except ToolError as error:  # how this client shows a result with isError
            return kit.Answer(text=str(error), is_error=True)
        return kit.read_mcp_content(result.content)


@asynccontextmanager
async def open_client(job: kit.Job) -> AsyncGenerator[FastMcpClient]:
    async with Client(StreamableHttpTransport(job.url, headers=dict(job.headers))) as client:
        yield FastMcpClient(client)


kit.run(open_client)
