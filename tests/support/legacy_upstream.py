"""A real legacy MCP server under the test's control, with sessions, an event store and the tasks of 2025-11-25.

    stage = LegacyStage()
    async with serving(stage.app()) as server:
        …                                   a client calls `work`
        await stage.until(lambda: stage.effects)
        server.drop_connections()           every connection breaks; the server and its sessions stay
        stage.release.set()                 `work` returns

Tools: `work` reports progress, waits for its release and reports again; `ask` requests input before that. `long` must be called
as a task, `either` may be. Each records its side effect in `stage.effects` when it starts; none may occur twice.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

import httpx
import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp_types import INVALID_PARAMS
from starlette.requests import Request

from tests.support.upstreams import WAIT_SECONDS, App, Context, Receive, Scope, Send

CREATED: Final = "2026-11-20T17:00:00Z"
SCHEMA: Final[dict[str, Any]] = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
ACCEPTED_ANSWER: Final[dict[str, Any]] = {"action": "accept", "content": {"sure": True}}
DONE_RESULT: Final[dict[str, Any]] = {"content": [{"type": "text", "text": "done"}]}


class RecordedEventStore(EventStore):
    """Stores every event with a number as its id."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._kept.append((stream_id, message))
        return str(len(self._kept))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        after = int(last_event_id)
        stream = self._kept[after - 1][0]
        for number, (stream_id, message) in enumerate(self._kept[after:], start=after + 1):
            if stream_id == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


class ReplayOfAllStreams(RecordedEventStore):
    """Replays what came after an event on any stream of any session, which a server must not."""

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        after = int(last_event_id)
        for number, (_, message) in enumerate(self._kept[after:], start=after + 1):
            if message is not None:
                await send_callback(EventMessage(message, str(number)))
        return self._kept[after - 1][0]


@dataclass(slots=True, eq=False)
class LegacyTask:
    id: str
    session: str | None
    ttl: int
    status: str = "working"
    message: str | None = None
    progress_token: str | int | None = None
    progress: float | None = None
    """Reported under the token of the tools/call, on the stream of each tasks/get."""
    result: dict[str, Any] | None = None
    error: MCPError | None = None
    cancels: int = 0
    polls: int = 0
    input_requested: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def end_task(
        self, status: str = "completed", result: dict[str, Any] | None = None, error: MCPError | None = None
    ) -> None:
        self.status, self.result, self.error = status, result or DONE_RESULT, error
        self.changed.set()

    def to_json(self) -> dict[str, Any]:
        task = {"taskId": self.id, "status": self.status, "createdAt": CREATED, "lastUpdatedAt": CREATED}
        message = {} if self.message is None else {"statusMessage": self.message}
        return {**task, "ttl": self.ttl, "pollInterval": 100, **message}


class _Server(Server[Any]):
    def get_capabilities(self, *args: Any, **options: Any) -> types.ServerCapabilities:
        capabilities = super().get_capabilities(*args, **options)
        wire: dict[str, Any] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
        return capabilities.model_copy(update={"tasks": types.ServerTasksCapability.model_validate(wire)})


class LegacyUpstream:
    def __init__(self, *, bound: bool = True, draft: bool = False) -> None:
        """Tasks belong to their session if `bound`, else to all sessions. `draft` names them as FastMCP 2.14 does."""
        self.effects: list[str] = []
        self.seen: list[tuple[str, str | None]] = []
        """Each HTTP request: its method and its Last-Event-ID."""
        self.sessions: list[str] = []
        """In the order of their first requests."""
        self.tasks: dict[str, LegacyTask] = {}
        self.answers: list[types.ElicitResult] = []
        self.release = asyncio.Event()
        self.cancelled = asyncio.Event()
        self._bound = bound
        self._draft = draft
        self._moved = asyncio.Event()

    def app(self, *, keeps_events: bool = True, events: RecordedEventStore | None = None, **options: Any) -> App:
        server = _Server("legacy", on_list_tools=self._list, on_call_tool=self._call)
        server.middleware.append(self._tasks)
        kept = (events or RecordedEventStore()) if keeps_events else None
        inner = server.streamable_http_app(event_store=kept, retry_interval=50, **options)

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                if headers.get("mcp-protocol-version", "") > "2026":
                    await send({"type": "http.response.start", "status": 400, "headers": []})
                    await send({"type": "http.response.body", "body": b"Unsupported protocol version"})
                    return
                self._record_request(scope["method"], headers)
            await inner(scope, receive, send)

        return serve

    def count(self, method: str, *, resuming: bool = False) -> int:
        return sum(seen[0] == method and (seen[1] is not None or not resuming) for seen in self.seen)

    async def wait_until(self, reached: Callable[[], Any]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not reached():
                self._moved.clear()
                await self._moved.wait()

    async def wait_for_task(self) -> LegacyTask:
        await self.wait_until(lambda: self.tasks)
        return next(iter(self.tasks.values()))

    async def end_session(self, url: str) -> None:
        """End the session that was opened last, as an upstream does that restarts."""
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
            headers = {"mcp-session-id": self.sessions[-1], "mcp-protocol-version": "2025-11-25"}
            assert (await client.delete(url, headers=headers)).is_success

    # -- observation --

    def _record_request(self, method: str, headers: dict[str, str]) -> None:
        self.seen.append((method, headers.get("last-event-id")))
        if (session := headers.get("mcp-session-id")) and session not in self.sessions:
            self.sessions.append(session)
        self._moved.set()

    def _begin_tool(self, tool: str) -> None:
        self.effects.append(tool)
        self._moved.set()

    async def _list(self, _context: Context, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[_tool("work"), _tool("ask"), _tool("long", "required"), _tool("either", "optional")]
        )

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        self._begin_tool(params.name)
        try:
            await context.session.report_progress(1, 2, "begun")
            if params.name == "ask":
                asked = await context.session.elicit_form("Really?", SCHEMA, related_request_id=context.request_id)
                self.answers.append(asked)
                self._moved.set()
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        await context.session.report_progress(2, 2, "nearly done")
        return types.CallToolResult(content=[types.TextContent(type="text", text=json.dumps(params.arguments))])

    async def _tasks(self, ctx: Context, call_next: Callable[[Context], Awaitable[Any]]) -> Any:
        """The SDK's server has no tasks of 2025-11-25, so this returns raw results."""
        context = ctx
        params = dict(context.params or {})
        if context.method == "tools/call" and params["name"] in {"long", "either"}:
            if "task" in params:
                created = self._create_task(params, _session_id(context)).to_json()
                return _draft_task_result(created) if self._draft else {"task": created}
            raise MCPError(-32601, "only as a task")
        if not context.method.startswith("tasks/"):
            return await call_next(context)
        task = self.tasks.get(params["taskId"])
        if task is None or (self._bound and task.session != _session_id(context)):
            raise MCPError(INVALID_PARAMS, "no such task")
        self._moved.set()
        match context.method:
            case "tasks/get":
                task.polls += 1
                await self._report_progress(context, task)
                return task.to_json()
            case "tasks/result":
                return await self._result(context, task)
            case _:
                return self._cancel(task)

    def _create_task(self, params: dict[str, Any], session: str | None) -> LegacyTask:
        task = LegacyTask(f"task-{len(self.tasks) + 1}", session, ttl=params["task"]["ttl"])
        task.progress_token = params.get("_meta", {}).get("progressToken")
        self.tasks[task.id] = task
        self._begin_tool(params["name"])
        return task

    async def _report_progress(self, context: Context, task: LegacyTask) -> None:
        if task.progress is not None and task.progress_token is not None:
            params = types.ProgressNotificationParams(progress_token=task.progress_token, progress=task.progress)
            notification = types.ProgressNotification(params=params)
            await context.session.send_notification(notification, related_request_id=context.request_id)

    async def _result(self, context: Context, task: LegacyTask) -> dict[str, Any]:
        if task.status == "input_required" and not task.input_requested:
            task.input_requested = True
            self.answers.append(
                await context.session.elicit_form("Really?", SCHEMA, related_request_id=context.request_id)
            )
            self._moved.set()
        while task.result is None:
            await task.changed.wait()
        if task.error is not None:
            raise task.error
        return {**task.result, "_meta": {"io.modelcontextprotocol/related-task": {"taskId": task.id}}}

    def _cancel(self, task: LegacyTask) -> dict[str, Any]:
        task.cancels += 1
        if task.status in {"completed", "failed", "cancelled"}:
            raise MCPError(INVALID_PARAMS, "it has ended")
        task.end_task("cancelled")
        return task.to_json()


def _draft_task_result(task: dict[str, Any]) -> dict[str, Any]:
    """Recorded from FastMCP 2.14.5."""
    named = {"taskId": task["taskId"], "status": task["status"]}
    return {"content": [], "isError": False, "_meta": {"modelcontextprotocol.io/task": named}}


def _session_id(context: Context) -> str | None:
    request = cast("Request", context.request)
    return request.headers.get("mcp-session-id")


def _tool(name: str, task_support: Literal["required", "optional"] | None = None) -> types.Tool:
    execution = None if task_support is None else types.ToolExecution(task_support=task_support)
    return types.Tool(name=name, input_schema={"type": "object"}, execution=execution)
