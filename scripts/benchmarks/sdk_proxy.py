"""A gateway that stores nothing: the SDK's server in front of the SDK's client.

It shows what a second hop costs by itself. What Ringback adds to it is the price of its promises: authentication, limits,
checked arguments and two commits for each call.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import mcp_types as types
import uvicorn
from mcp import Client
from mcp.server import Server, ServerRequestContext


@asynccontextmanager
async def sdk_proxy(upstream: str, mode: str) -> AsyncGenerator[str]:
    """The URL of a proxy that runs on this event loop, with one client of the era `mode` for all calls."""
    async with Client(upstream, mode=mode) as client, asyncio.TaskGroup() as group:
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(_make_server(client).streamable_http_app(), log_level="warning", access_log=False, ws="none")
        )
        group.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True


def _make_server(client: Client) -> Server[object]:
    async def list_tools(
        _context: ServerRequestContext[object], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return await client.list_tools()

    async def call_tool(
        _context: ServerRequestContext[object], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return await client.call_tool(params.name, params.arguments)

    return Server("proxy", on_list_tools=list_tools, on_call_tool=call_tool)
