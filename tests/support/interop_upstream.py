"""An MCP server with tools that test a gateway: a valid and an invalid outputSchema, a widget, an elicitation, a long wait.

stage = InteropStage()
async with serving(stage.app()) as server:
    …                                   a client calls `hold`
    await stage.until_held()
    stage.release.set()                 `hold` returns; if the client cancels instead, `stage.let_go` is set
"""

import asyncio
from typing import Any, Final

import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tests.support.upstreams import WAIT_SECONDS, App, Context

COUNTED_SCHEMA: Final = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
WIDGET: Final = "ui://widget/board.html"
COLOUR_QUESTION: Final = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
BLUE_ANSWER: Final[dict[str, Any]] = {"action": "accept", "content": {"colour": "blue"}}

TOOLS: Final[tuple[dict[str, Any], ...]] = (
    {
        "name": "count",
        "title": "Count",
        "description": "Counts, and keeps to its outputSchema.",
        "outputSchema": COUNTED_SCHEMA,
        "annotations": {"readOnlyHint": True},
        "icons": [{"src": "https://stage.example/count.png"}],
    },
    {"name": "lie", "description": "Counts, and breaks its outputSchema.", "outputSchema": COUNTED_SCHEMA},
    {"name": "widget", "description": "Is shown as a widget.", "_meta": {"openai/outputTemplate": WIDGET}},
    {"name": "ask", "description": "Asks for a colour."},
    {"name": "fail", "description": "Fails, and says so."},
    {"name": "hold", "description": "Answers when it is let go."},
    {"name": "wait", "description": "The same, by a name that may be given a longer window."},
)


class InteropUpstream:
    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.let_go = asyncio.Event()
        """Set when the client of `hold` or `wait` has cancelled it."""
        self._held = asyncio.Event()
        self.seen_meta: list[dict[str, Any]] = []
        """The `_meta` of every received tools/call."""
        self.seen_requests: list[tuple[str, dict[str, str]]] = []
        """The URL and the headers of every received tools/call."""

    def app(self, **options: Any) -> App:
        server = Server(
            "stage",
            version="1.2.3",
            instructions="Paint it blue.",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_list_resources=_list_resources,
            on_read_resource=_read_resource,
        )
        return server.streamable_http_app(**options)

    async def wait_until_held(self) -> None:
        """Wait for the next call of `hold` or `wait`."""
        await asyncio.wait_for(self._held.wait(), WAIT_SECONDS)
        self._held.clear()

    def reset(self) -> None:
        self.release.clear()
        self.let_go.clear()
        self._held.clear()

    async def _list(self, _context: Context, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult.model_validate(
            {"tools": [{"inputSchema": {"type": "object"}, **tool} for tool in TOOLS]}
        )

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> Any:
        self.seen_meta.append(dict(context.meta or {}))
        if context.request is not None:
            self.seen_requests.append((str(context.request.url), dict(context.request.headers)))
        match params.name:
            case "count":
                count = (params.arguments or {}).get("count", 3)
                return _result(str(count), structuredContent={"count": count})
            case "lie":
                return _result("three", structuredContent={"count": "three"})
            case "widget":
                return _result("a board", _meta={"openai/widgetState": {"turn": 1}})
            case "ask":
                return await _request_colour(context, params)
            case "hold" | "wait":
                return await self._hold()
            case "fail":
                return _result("No paint left.", isError=True)
            case _:
                raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")

    async def _hold(self) -> types.CallToolResult:
        self._held.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.let_go.set()
            raise
        return _result("held")


async def _request_colour(context: Context, params: types.CallToolRequestParams) -> Any:
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        elicited = await context.session.elicit_form(
            "Which colour?", COLOUR_QUESTION, related_request_id=context.request_id
        )
        return _result(f"painted {(elicited.content or {}).get('colour')}")
    if not params.input_responses:
        request = {
            "method": "elicitation/create",
            "params": {"message": "Which colour?", "requestedSchema": COLOUR_QUESTION},
        }
        asked: types.InputRequests = {"colour": types.ElicitRequest.model_validate(request)}
        return types.InputRequiredResult(input_requests=asked)
    answer: dict[str, Any] = params.input_responses["colour"].model_dump()
    return _result(f"painted {answer['content']['colour']}")


def _result(text: str, **rest: Any) -> types.CallToolResult:
    return types.CallToolResult.model_validate({"content": [{"type": "text", "text": text}], **rest})


async def _list_resources(_context: Context, _params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[types.Resource(uri=WIDGET, name="board", mime_type="text/html")])


async def _read_resource(_context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    text = types.TextResourceContents(uri=params.uri, mime_type="text/html", text="<p>board</p>")
    return types.ReadResourceResult(contents=[text])
