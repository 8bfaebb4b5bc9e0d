"""The MCP SDK for Python, 2.x: `Client.call_tool`, over streamable HTTP or a command."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import kit
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


class Sdk2Client:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def list_tools(self) -> list[str]:
        return [tool.name for tool in (await self._client.list_tools()).tools]

    async def call(
        self, tool: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None, on_progress: Callable[[], None]
    ) -> kit.Answer:
        result = await self._client.call_tool(
            tool, arguments, progress_callback=kit.counting(on_progress), meta=meta or None
        )
        answer = kit.read_mcp_content(result.content)
        answer.is_error = bool(result.is_error)
        return answer


@asynccontextmanager
async def open_client(job: kit.Job) -> AsyncGenerator[Sdk2Client]:
    if not job.headers:
        server = StdioServerParameters(command=job.command[0], args=list(job.command[1:])) if job.command else job.url
        async with Client(server) as client:
            yield Sdk2Client(client)
        return
    async with (
        httpx2.AsyncClient(headers=dict(job.headers)) as http,
        Client(streamable_http_client(job.url, http_client=http)) as client,
    ):
        yield Sdk2Client(client)


kit.run(open_client)
