"""The extension for servers made with FastMCP 4.

    from fastmcp import FastMCP
    from ringback.extension.fastmcp import Callbacks

    server = FastMCP("reports")
    server.add_extension(Callbacks.reporting("https://ringback.example", api_key="rbk_…", upstream="reports"))

Add it to the server that you run, not to one that is mounted in another. A call that FastMCP's tasks extension turns into a
task is not reported: its client follows the task.
"""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, NoReturn

from mcp.server.context import HandlerResult
from mcp_types import CallToolRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ringback.extension.call_reporter import SdkContext
from ringback.extension.callback_request import strip_callback
from ringback.extension.tool_call_reporting import ToolCallReporting

try:
    from fastmcp.exceptions import NotFoundError
    from fastmcp.server.context import Context
    from fastmcp.server.dependencies import bind_request_context
    from fastmcp.server.extensions import (
        ServerExtension,
        ToolCallContinuation,
        ToolCallOutcome,
        read_client_extension_settings,
    )
    from fastmcp.utilities.tasks import TASKS_EXTENSION_ID

    from ringback.extension.events.fastmcp import Events
except ImportError as missing:
    raise ImportError("This module needs FastMCP 4: pip install 'fastmcp>=4.1,<5'") from missing

__all__ = ["Callbacks", "Events"]

TOOLS_CALL: Final = "tools/call"


class Callbacks(ToolCallReporting, ServerExtension):
    """For FastMCP 4: `server.add_extension(callbacks)`. The server's lifespan opens it."""

    _how_to_open = "Add them to the server that you run (server.add_extension), not to one that is mounted in another."

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """FastMCP enters it with the lifespan of the server that runs."""
        async with self:
            with self._wrapped_tool_calls():
                yield

    @contextmanager
    def _wrapped_tool_calls(self) -> Generator[None]:
        """Report calls where FastMCP takes them from the wire: below, a call has neither its `_meta` nor its final result."""
        low_level = self.server._mcp_server  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - FastMCP names no other way
        entry = low_level.get_request_handler(TOOLS_CALL)
        if entry is None:
            raise RuntimeError("This FastMCP server has no handler of tools/call. Use a version from 4.1 on, below 5.")

        async def handle_call(ctx: SdkContext, params: CallToolRequestParams) -> HandlerResult:
            async def run_tool(inner_ctx: SdkContext) -> HandlerResult:
                return await entry.handler(inner_ctx, params)

            if await self._becomes_task(ctx, params):
                return await run_tool(strip_callback(ctx))
            return await self.report_tool_call(params, ctx, run_tool)

        low_level.add_request_handler(TOOLS_CALL, CallToolRequestParams, handle_call)
        try:
            yield
        finally:
            low_level.add_request_handler(TOOLS_CALL, entry.params_type, entry.handler)

    async def _becomes_task(self, ctx: SdkContext, params: CallToolRequestParams) -> bool:
        """Whether FastMCP's tasks extension answers this call with a task."""
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return False
        if read_client_extension_settings(ctx, TASKS_EXTENSION_ID) is None:
            return False
        with bind_request_context(ctx):
            async with Context(fastmcp=self.server):
                try:
                    tool = await self.server.get_tool(params.name)
                except NotFoundError:
                    return False
        return tool is not None and tool.task_config.supports_tasks()

    async def intercept_tool_call(
        self,
        params: CallToolRequestParams,  # noqa: ARG002 - FastMCP's signature
        context: Context,
        call_next: ToolCallContinuation,
    ) -> ToolCallOutcome:
        """Pass the call on. A client's call fails if nothing would report it."""
        if context.request_context is not None:
            self.require_open()
        return await call_next()

    def tools(self) -> NoReturn:
        """The SDK's `MCPServer(extensions=…)` calls it first."""
        raise TypeError("For the SDK's MCPServer, import Callbacks from ringback.extension.")
