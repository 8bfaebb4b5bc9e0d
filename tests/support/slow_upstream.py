"""A server whose tool takes real time, for tests that no component gives up early."""

import asyncio
from typing import Any, Final

import mcp_types as types
from mcp.server.lowlevel import Server

from tests.support.upstreams import App, Context

RESULT_SCHEMA: Final = {"type": "object", "properties": {"worked": {"type": "number"}}, "required": ["worked"]}


class SlowUpstream:
    """A server whose tool takes the given time, or longer, until the clients that do not wait have their responses."""

    def __init__(self, seconds: float, *, told_first: int) -> None:
        self.seconds = seconds
        self._clients_to_inform = told_first
        self._all_informed = asyncio.Event()

    def app(self) -> App:
        return Server("worker", on_list_tools=self._list, on_call_tool=self._call).streamable_http_app()

    def confirm_client_informed(self) -> None:
        self._clients_to_inform -= 1
        if self._clients_to_inform == 0:
            self._all_informed.set()

    async def _list(self, _context: Context, _params: Any) -> types.ListToolsResult:
        tool = {"name": "work", "inputSchema": {"type": "object"}, "outputSchema": RESULT_SCHEMA}
        return types.ListToolsResult.model_validate({"tools": [tool]})

    async def _call(self, _context: Context, _params: types.CallToolRequestParams) -> types.CallToolResult:
        await asyncio.sleep(self.seconds)  # what it does
        await self._all_informed.wait()
        return types.CallToolResult.model_validate(
            {"content": [{"type": "text", "text": "worked"}], "structuredContent": {"worked": self.seconds}}
        )
