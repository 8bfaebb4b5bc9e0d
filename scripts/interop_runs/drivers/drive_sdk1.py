"""The MCP SDK for Python, 1.x: `ClientSession.call_tool`, over streamable HTTP or a command."""

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kit
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client


class Sdk1Client:
    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._sets_meta = "meta" in inspect.signature(session.call_tool).parameters

    async def list_tools(self) -> list[str]:
        return [tool.name for tool in (await self._session.list_tools()).tools]

    async def call(
        self, tool: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None, on_progress: Callable[[], None]
    ) -> kit.Answer:
        named = {"meta": meta} if meta and self._sets_meta else {}
        result = await self._session.call_tool(tool, arguments, progress_callback=kit.counting(on_progress), **named)
        answer = kit.read_mcp_content(result.content)
        answer.is_error = result.isError
        return answer


@asynccontextmanager
async def open_client(job: kit.Job) -> AsyncGenerator[Sdk1Client]:
    transport = (
        stdio_client(StdioServerParameters(command=job.command[0], args=list(job.command[1:])))
        if job.command
        else streamablehttp_client(job.url, headers=dict(job.headers))
    )
    async with transport as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        yield Sdk1Client(session)


kit.run(open_client)
