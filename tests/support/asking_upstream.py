"""A legacy MCP server over HTTP whose tools ask questions, in this process.

    upstream = AskingUpstream()
    async with serving(upstream.app()) as server: …

`ask` asks its `question` on the stream of its request, `ask_aside` on the stream of the session. `ask_together` asks once
`count` calls of its `group` run. `ask_briefly` withdraws its question. `sample` and `roots` send requests that clients may
refuse. `visits` counts its calls in one session. `learn` announces a changed list, and `enable` adds a tool for its own
session. The tools that ask are listed only for a client that declared elicitation. The result of a tool that sends a request is
the response to it, as JSON.
"""

import asyncio
import json
from typing import Any, Final, cast

import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.shared.message import ServerMessageMetadata
from starlette.requests import Request

from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import App, Context, Receive, Scope, Send, make_legacy_app

SCHEMA: Final[dict[str, Any]] = {"type": "object", "properties": {"answer": {"type": "string"}}}
PLAIN_TOOLS: Final = ("visits", "sample", "roots")
ASKING_TOOLS: Final = ("ask", "ask_aside", "ask_together")


class AskingUpstream:
    def __init__(self) -> None:
        self.opened_sessions = 0
        self.closed_sessions = 0
        self.tools: tuple[str, ...] = PLAIN_TOOLS
        self.asking_tools: tuple[str, ...] = ASKING_TOOLS
        self.refuses_elicitation = False
        """Whether `initialize` of a client that declares elicitation fails."""
        self.withdraw = asyncio.Event()
        """`ask_briefly` withdraws its question when this is set."""
        self.release = asyncio.Event()
        """`ask_briefly` then returns when this is set."""
        self._together: dict[str, int] = {}
        """The number of `ask_together` calls by their `group`."""
        self._changed = asyncio.Event()
        self._visits: dict[str, int] = {}
        self._enabled: set[str] = set()
        """The sessions that have called `enable`."""

    def app(self, **options: Any) -> App:
        server = Server("asking", on_list_tools=self._list_tools, on_call_tool=self._call_tool)
        server.middleware.append(self._handle_request)
        inner = make_legacy_app(server.streamable_http_app(**options))

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and scope["method"] == "DELETE":
                self.closed_sessions += 1
                self._changed.set()
            await inner(scope, receive, send)

        return serve

    async def wait_until_closed(self, count: int) -> None:
        """Wait until clients have closed this number of sessions."""
        async with asyncio.timeout(WAIT_SECONDS):
            while self.closed_sessions < count:
                self._changed.clear()
                await self._changed.wait()

    async def _handle_request(self, ctx: Context, call_next: Any) -> Any:
        if ctx.method == "initialize":
            capabilities = (ctx.params or {}).get("capabilities", {})
            if self.refuses_elicitation and "elicitation" in capabilities:
                raise MCPError(-32600, "one session only")
            self.opened_sessions += 1
        return await call_next(ctx)

    async def _list_tools(self, context: Context, _params: Any) -> types.ListToolsResult:
        capabilities = context.session.client_capabilities
        asks = capabilities is not None and capabilities.elicitation is not None
        names = (*self.tools, *self.asking_tools) if asks else self.tools
        if _session_id(context) in self._enabled:
            names = (*names, "enabled")
        return types.ListToolsResult(tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in names])

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        match params.name:
            case "ask" | "ask_aside":
                return await _ask(context, arguments["question"], is_related=params.name == "ask")
            case "ask_briefly":
                return await self._ask_briefly(context, arguments["question"])
            case "ask_together":
                await self._wait_for_others(arguments)
                return await _ask(context, arguments["question"], is_related=arguments.get("related", True))
            case "sample" | "roots":
                return await _send_refused_request(context, params.name)
            case "learn" | "enable":
                if params.name == "enable":
                    self._enabled.add(_session_id(context))
                await context.session.send_notification(types.ToolListChangedNotification())
                return _result("announced")
            case _:
                session_id = _session_id(context)
                self._visits[session_id] = self._visits.get(session_id, 0) + 1
                return _result(self._visits[session_id])

    async def _ask_briefly(self, context: Context, question: str) -> types.CallToolResult:
        asking = asyncio.create_task(_ask(context, question))
        await self.withdraw.wait()
        asking.cancel()
        await asyncio.wait([asking])
        await self.release.wait()
        return _result("withdrawn")

    async def _wait_for_others(self, arguments: dict[str, Any]) -> None:
        group = arguments.get("group", "")
        self._together[group] = self._together.get(group, 0) + 1
        self._changed.set()
        async with asyncio.timeout(WAIT_SECONDS):
            while self._together[group] < arguments["count"]:
                self._changed.clear()
                await self._changed.wait()


def _session_id(context: Context) -> str:
    request = context.request
    assert isinstance(request, Request)
    return request.headers["mcp-session-id"]


async def _ask(context: Context, question: str, *, is_related: bool = True) -> types.CallToolResult:
    try:
        response = await context.session.elicit_form(
            question, SCHEMA, related_request_id=context.request_id if is_related else None
        )
    except MCPError as refused:
        return _result({"code": refused.error.code, "message": refused.error.message})
    return _result(response.model_dump(mode="json", by_alias=True, exclude_none=True))


async def _send_refused_request(context: Context, name: str) -> types.CallToolResult:
    sampling = types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[], max_tokens=1))
    request = sampling if name == "sample" else types.ListRootsRequest()
    metadata = ServerMessageMetadata(related_request_id=context.request_id)
    try:
        await context.session.send_request(cast("Any", request), types.EmptyResult, metadata=metadata)
    except MCPError as refused:
        return _result({"code": refused.error.code, "message": refused.error.message})
    return _result("answered")


def _result(response: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=json.dumps(response))])
