"""A server whose tool takes its time by the clock, as tools do: what is tested is that nobody on the way gives up."""

import asyncio
from typing import Any, Final

import mcp_types as types
from mcp.server.lowlevel import Server

from tests.support.upstreams import App, Context

WORKED: Final = {"type": "object", "properties": {"worked": {"type": "number"}}, "required": ["worked"]}


class Worker:
    """A server whose tool takes so long, and on a slow machine until those who do not wait for it were told that it runs."""

    def __init__(self, seconds: float, *, told_first: int) -> None:
        self.seconds = seconds
        self._untold = told_first
        self._all_told = asyncio.Event()

    def app(self) -> App:
        return Server("worker", on_list_tools=self._list, on_call_tool=self._call).streamable_http_app()

    def told(self) -> None:
        self._untold -= 1
        if self._untold == 0:
            self._all_told.set()

    async def _list(self, _context: Context, _params: Any) -> types.ListToolsResult:
        tool = {"name": "work", "inputSchema": {"type": "object"}, "outputSchema": WORKED}
        return types.ListToolsResult.model_validate({"tools": [tool]})

    async def _call(self, _context: Context, _params: types.CallToolRequestParams) -> types.CallToolResult:
        await asyncio.sleep(self.seconds)  # what it does
        await self._all_told.wait()
        return types.CallToolResult.model_validate(
            {"content": [{"type": "text", "text": "worked"}], "structuredContent": {"worked": self.seconds}}
        )
