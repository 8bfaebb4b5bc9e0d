"""An MCP server whose tools show whose account a call used."""

import asyncio
from typing import Any

import mcp_types as types
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.lowlevel import Server

from tests.support.upstreams import App, Context


class AccountServer:
    """Tools: `whoami` returns the account of the token, `deploy` also records it, `hold` waits for `release`."""

    def __init__(self) -> None:
        self.deployed_by: list[str] = []
        """The accounts in the order of the runs of `deploy`."""
        self.release = asyncio.Event()
        self.is_held = asyncio.Event()

    def app(self, **options: Any) -> App:
        server = Server("accounts", on_list_tools=self._list_tools, on_call_tool=self._call_tool)
        return server.streamable_http_app(**options)

    async def _list_tools(self, _context: Context, _params: Any) -> types.ListToolsResult:
        names = ("whoami", "deploy", "hold")
        return types.ListToolsResult(tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in names])

    async def _call_tool(self, _context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        token = get_access_token()
        account = (token and token.subject) or "unknown"
        if params.name == "deploy":
            self.deployed_by.append(account)
        if params.name == "hold":
            self.is_held.set()
            await self.release.wait()
        return types.CallToolResult(content=[types.TextContent(type="text", text=account)])
