"""An MCP server with everything that the gateway proxies besides tools: resources, prompts, completions, log messages.

library = Library()
async with serving(library.app("legacy")) as server, opened(http_config(server.url, name="library")) as upstreams:
    await upstreams.passage.ask("library", "resources/read", {"uri": "book://1"})
"""

import asyncio
from typing import Any, Final

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tests.support.upstreams import App, Context, make_app_of_era

ERAS: Final = ("modern", "legacy")
UPSTREAM_NAME: Final = "library"
BOOK_URI: Final = "book://1"
INSTRUCTIONS: Final = "Read quietly."


class LibraryUpstream:
    """`talk` logs a message of each given level; with `aside`, not on the stream of its call."""

    def __init__(self, *, books: int = 3) -> None:
        self.books = [f"book://{number}" for number in range(1, books + 1)]
        self.prompts = [types.Prompt(name="review")]
        self.subscribed: list[str] = []
        self.unsubscribed: list[str] = []
        self.levels: list[str] = []
        self.list_requests: list[str] = []
        """The methods of list requests, in their order."""
        self._bus = InMemorySubscriptionBus()
        self._listen_handler = ListenHandler(self._bus)
        self._sessions: dict[str, Any] = {}
        self._subscription_changed = asyncio.Event()

    def app(self, era: str, **options: Any) -> App:
        app = self.server().streamable_http_app(**options)
        return make_app_of_era(app, era)

    def server(self) -> Server[Any]:
        server = Server(
            UPSTREAM_NAME,
            version="7",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listen_subscriptions,
        )
        server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        return server

    async def wait_until_subscribed(self, uri: str) -> None:
        """Wait until a client has subscribed to this book, in the way of its era."""
        while uri not in self.subscribed:
            self._subscription_changed.clear()
            await self._subscription_changed.wait()

    async def publish_resource_change(self, uri: str) -> None:
        await self._bus.publish(ResourceUpdated(uri=uri))
        for session in list(self._sessions.values()):
            await session.send_notification(
                types.ResourceUpdatedNotification(params=types.ResourceUpdatedNotificationParams(uri=uri))
            )

    def close_listen_streams(self) -> None:
        """End the streams of `subscriptions/listen` regularly."""
        self._listen_handler.close()

    async def publish_list_changes(self) -> None:
        await self._bus.publish(ResourcesListChanged())
        await self._bus.publish(PromptsListChanged())
        for session in list(self._sessions.values()):
            await session.send_notification(types.ResourceListChangedNotification())
            await session.send_notification(types.PromptListChangedNotification())

    async def _list_tools(self, _context: Context, _params: Any) -> types.ListToolsResult:
        self.list_requests.append("tools/list")
        return types.ListToolsResult(tools=[types.Tool(name="talk", input_schema={"type": "object"})])

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        related = None if arguments.get("aside") else context.request_id
        for level in arguments.get("levels", ()):
            if context.protocol_version in MODERN_PROTOCOL_VERSIONS and types.LOG_LEVEL_META_KEY not in (
                context.meta or {}
            ):
                continue  # it may send only what was requested
            message = types.LoggingMessageNotification(
                params=types.LoggingMessageNotificationParams(level=level, data=f"a {level} message")
            )
            await context.session.send_notification(message, related_request_id=related)
        await context.session.report_progress(1, 2, "half")
        return types.CallToolResult(content=[])

    async def _list_resources(self, _context: Context, params: Any) -> types.ListResourcesResult:
        """One book on each page."""
        self.list_requests.append("resources/list")
        place = int(params.cursor) if params is not None and params.cursor else 0
        books = [types.Resource(uri=uri, name=uri) for uri in self.books[place : place + 1]]
        return types.ListResourcesResult(
            resources=books, next_cursor=str(place + 1) if place + 1 < len(self.books) else None
        )

    async def _list_templates(self, _context: Context, _params: Any) -> types.ListResourceTemplatesResult:
        self.list_requests.append("resources/templates/list")
        template = types.ResourceTemplate(uri_template="book://{number}", name="book")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def _list_prompts(self, _context: Context, _params: Any) -> types.ListPromptsResult:
        self.list_requests.append("prompts/list")
        return types.ListPromptsResult(prompts=self.prompts)

    async def _read(self, _context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        if params.uri not in self.books:
            raise MCPError(-32602, "There is no such book.", {"uri": params.uri})
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text="Once …")])

    async def _get_prompt(self, _context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        text = types.TextContent(type="text", text=f"{params.name}: {params.arguments}")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])

    async def _complete(self, _context: Context, _params: Any) -> types.CompleteResult:
        return types.CompleteResult(completion=types.Completion(values=["1", "2"]))

    async def _subscribe(self, context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        if params.uri not in self.books:
            raise MCPError(-32602, "There is no such book.")
        self._sessions[params.uri] = context.session
        self.subscribed.append(params.uri)
        self._subscription_changed.set()
        return types.EmptyResult()

    async def _unsubscribe(self, _context: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self._sessions.pop(params.uri, None)
        self.unsubscribed.append(params.uri)
        return types.EmptyResult()

    async def _listen_subscriptions(self, context: Context, params: types.SubscriptionsListenRequestParams) -> Any:
        self.subscribed += params.notifications.resource_subscriptions or ()
        self._subscription_changed.set()
        return await self._listen_handler(context, params)

    async def _set_level(self, _context: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self.levels.append(params.level)
        return types.EmptyResult()


async def main() -> None:
    """The library as a stdio child process."""
    server = LibraryUpstream().server()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
