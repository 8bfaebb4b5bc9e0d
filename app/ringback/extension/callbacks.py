"""The extension for servers made with the MCP SDK."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from mcp.server.context import CallNext, HandlerResult
from mcp.server.extension import Extension
from mcp_types import CallToolRequestParams

from ringback.extension.call_reporter import SdkContext
from ringback.extension.tool_call_reporting import ToolCallReporting


class Callbacks(ToolCallReporting, Extension):
    """For the SDK: `MCPServer("reports", extensions=[callbacks], lifespan=callbacks.lifespan)`."""

    _how_to_open = "Pass lifespan=callbacks.lifespan to the server."

    @asynccontextmanager
    async def lifespan(self, server: object) -> AsyncGenerator[dict[str, Any]]:  # noqa: ARG002 - the SDK passes it
        """For `MCPServer(lifespan=…)` with stdio or streamable HTTP, which enter it once."""
        async with self:
            yield {}

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: SdkContext, call_next: CallNext
    ) -> HandlerResult:
        return await self.report_tool_call(params, ctx, call_next)

    @property
    def _server_ref(self) -> NoReturn:
        """FastMCP's `add_extension` reads it first."""
        raise TypeError("For a FastMCP server, import Callbacks from ringback.extension.fastmcp.")
