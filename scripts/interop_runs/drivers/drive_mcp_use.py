"""mcp-use: `MCPSession.call_tool`."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kit
from mcp_use import MCPClient


class McpUseClient:
    def __init__(self, session: Any) -> None:
        self._session = session

    async def list_tools(self) -> list[str]:
        return [tool.name for tool in await self._session.list_tools()]

    async def call(
        self, tool: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None, on_progress: Callable[[], None]
    ) -> kit.Answer:
        del meta, on_progress
        result = await self._session.call_tool(name=tool, arguments=arguments)
        answer = kit.read_mcp_content(result.content)
        answer.is_error = bool(getattr(result, "isError", None) or getattr(result, "is_error", False))
        return answer


@asynccontextmanager
async def open_client(job: kit.Job) -> AsyncGenerator[McpUseClient]:
    client = MCPClient.from_dict({"mcpServers": {"stage": {"url": job.url, "headers": dict(job.headers)}}})
    try:
        yield McpUseClient(await client.create_session("stage"))
    finally:
        await client.close_all_sessions()


kit.run(open_client)
