"""A real MCP server of 2026-07-28 with one resource and one tool, which sends notifications when they change.

stage = ResourceStage()
async with serving(stage.app()) as server:
    …                                   a client subscribes to `NOTE`
    await stage.until(lambda: stage.watched)
    await stage.change()
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)

from tests.support.upstreams import WAIT_SECONDS, App, Context

NOTE_URI: Final = "note://today"


class ResourceUpstream:
    def __init__(self) -> None:
        self.subscribed: list[str] = []
        """Subscribed resources, one entry for each stream."""
        self.listed = 0
        """Streams that are subscribed to lists."""
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self._moved = asyncio.Event()

    def app(self, **options: Any) -> App:
        server = Server(
            "notes",
            on_list_tools=self._tools,
            on_list_resources=self._resources,
            on_read_resource=self._read,
            on_subscriptions_listen=self._listening,
        )
        return server.streamable_http_app(**options)

    async def publish_resource_change(self) -> None:
        await self._bus.publish(ResourceUpdated(NOTE_URI))

    async def publish_list_changes(self) -> None:
        await self.wait_until(lambda: self.listed)
        await self._bus.publish(ToolsListChanged())
        await self._bus.publish(ResourcesListChanged())

    async def wait_until(self, reached: Callable[[], Any]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not reached():
                self._moved.clear()
                await self._moved.wait()

    async def _listening(self, context: Context, params: types.SubscriptionsListenRequestParams) -> Any:
        uris, lists = params.notifications.resource_subscriptions or [], bool(params.notifications.tools_list_changed)
        self.subscribed += uris
        self.listed += lists
        self._moved.set()
        try:
            return await self._listen(context, params)
        finally:
            for uri in uris:
                self.subscribed.remove(uri)
            self.listed -= lists
            self._moved.set()

    async def _tools(self, _context: Context, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="note", input_schema={"type": "object"})])

    async def _resources(self, _context: Context, _params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(name="today", uri=NOTE_URI)])

    async def _read(self, _context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text="dear diary")])
