"""A real MCP server of 2026-07-28 with tasks and input_required rounds, under the test's control.

    stage = TaskStage()
    async with serving(stage.app()) as server:
        …                                   a client calls `work`
        task = await stage.task(1)
        task.complete("done")

Tools: `work` becomes a task. `confirm` requests input in `rounds` rounds. `confirm_then_work` requests input once and then
becomes a task. `moment` asks for another round without a request for input. Each records its side effect in `stage.effects`
when it starts its work; none may occur twice.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY, RequestParams
from pydantic import Field

from tests.support.upstreams import WAIT_SECONDS, App, Context

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
QUESTION: Final[dict[str, Any]] = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Really?",
        "requestedSchema": {"type": "object", "properties": {"sure": {"type": "boolean"}}},
    },
}
ACCEPTED_ANSWER: Final[dict[str, Any]] = {"action": "accept", "content": {"sure": True}}
CREATED: Final = "2026-11-20T17:00:00Z"


class TaskParams(RequestParams):
    task_id: str = Field(alias="taskId")


class UpdateParams(TaskParams):
    input_responses: dict[str, Any] = Field(alias="inputResponses")


class ListenParams(RequestParams):
    notifications: dict[str, Any]


@dataclass(slots=True, eq=False)
class UpstreamTask:
    """An upstream's task; status changes are sent to subscribers."""

    id: str
    stage: "TaskUpstream"
    state: dict[str, Any] = field(default_factory=lambda: {"status": "working"})
    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    cancels: int = 0

    def set_state(self, **state: Any) -> None:
        self.state = state
        self.stage.publish_task(self)

    def complete_task(self, text: str) -> None:
        self.set_state(status="completed", result=text_result(text))

    def request_input(self, *keys: str) -> None:
        self.set_state(
            status="input_required", inputRequests={key: QUESTION for key in keys if key not in self.answers}
        )


def text_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": False}


class TaskUpstream:
    def __init__(self, *, listening: bool = False, poll_ms: int | None = 100, rounds: int = 1) -> None:
        self.tasks: dict[str, UpstreamTask] = {}
        self.requests: list[tuple[str, Any]] = []
        """Every received tools/call and tasks/… with its params."""
        self.side_effects: list[str] = []
        """Tools that have started their work."""
        self.declared: list[types.ClientCapabilities] = []
        self.honours_cancel = True
        """Whether tasks/cancel ends a working task."""
        self.tools_may_respond = asyncio.Event()
        """tools/call responds only while it is set."""
        self.tools_may_respond.set()
        self.questions_may_go = asyncio.Event()
        """A question is asked only while it is set."""
        self.questions_may_go.set()
        self.on_retry: Callable[[], Any] = lambda: None
        """Called in each round after the first; raises to reject it."""
        self._listening = listening
        self._poll_ms = poll_ms
        self._rounds = rounds
        self._listeners: dict[asyncio.Queue[dict[str, Any]], list[str]] = {}
        self._changed = asyncio.Event()

    def app(self, **options: Any) -> App:
        tools = ["work", "confirm", "confirm_then_work", "moment"]
        server = Server(
            "tasks",
            on_list_tools=lambda _context, _params: self._list(tools),
            on_call_tool=self._call,
        )
        server.extensions[TASKS_EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", UpdateParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)
        server.add_request_handler("subscriptions/listen", ListenParams, self._listen)
        return server.streamable_http_app(**options)

    # -- for the test --

    async def wait_for_task(self, number: int) -> UpstreamTask:
        """Wait for the task with this number, counted from 1."""
        await self.wait_until(lambda: len(self.tasks) >= number)
        return list(self.tasks.values())[number - 1]

    async def wait_until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not reached():
                self._changed.clear()
                await self._changed.wait()

    def count_requests(self, method: str) -> int:
        return sum(each == method for each, _ in self.requests)

    def publish_task(self, task: UpstreamTask) -> None:
        self._changed.set()
        for queue, task_ids in self._listeners.items():
            if task.id in task_ids:
                queue.put_nowait(self._task_json(task))

    # -- the server --

    async def _list(self, names: list[str]) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in names])

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> Any:
        capabilities = context.session.client_capabilities or types.ClientCapabilities()
        self.declared.append(capabilities)
        self._record_request("tools/call", params)
        state = json.loads(params.request_state) if params.request_state else {"round": 0}
        if params.request_state:
            self.on_retry()
        match params.name:
            case "confirm" if state["round"] < self._rounds:
                await self.questions_may_go.wait()
                return _input_required_result(state["round"] + 1)
            case "confirm_then_work" if state["round"] < 1:
                return _input_required_result(1)
            case "moment" if state["round"] < self._rounds:
                return types.InputRequiredResult(request_state=json.dumps({"round": state["round"] + 1}))
            case _:
                return await self._run_tool(params, capabilities)

    async def _run_tool(self, params: types.CallToolRequestParams, capabilities: types.ClientCapabilities) -> Any:
        self.side_effects.append(params.name)
        self._changed.set()
        await self.tools_may_respond.wait()
        if params.name in {"work", "confirm_then_work"} and TASKS_EXTENSION in (capabilities.extensions or {}):
            task = UpstreamTask(f"task-{len(self.tasks) + 1}", self)
            self.tasks[task.id] = task
            self._changed.set()
            return {"resultType": "task", **self._task_json(task), "status": "working"}
        answers = {key: each.model_dump(exclude_none=True) for key, each in (params.input_responses or {}).items()}
        return types.CallToolResult.model_validate(text_result(json.dumps(answers)))

    async def _get(self, context: Context, params: TaskParams) -> Any:
        return {"resultType": "complete", **self._task_json(self._find(context, "tasks/get", params))}

    async def _update(self, context: Context, params: UpdateParams) -> Any:
        task = self._find(context, "tasks/update", params)
        asked = task.state.get("inputRequests", {})
        task.answers |= {key: answer for key, answer in params.input_responses.items() if key in asked}
        rest = {key: request for key, request in asked.items() if key not in task.answers}
        task.set_state(**({"status": "input_required", "inputRequests": rest} if rest else {"status": "working"}))
        return {"resultType": "complete"}

    async def _cancel(self, context: Context, params: TaskParams) -> Any:
        task = self._find(context, "tasks/cancel", params)
        task.cancels += 1
        if self.honours_cancel and task.state["status"] in {"working", "input_required"}:
            task.set_state(status="cancelled")
        self._changed.set()
        return {"resultType": "complete"}

    async def _listen(self, context: Context, params: ListenParams) -> Any:
        wanted: list[str] = params.notifications.get("taskIds", []) if self._listening else []
        meta = {SUBSCRIPTION_ID_META_KEY: context.request_id}
        await _notify(
            context,
            "notifications/subscriptions/acknowledged",
            {"notifications": {"taskIds": wanted} if wanted else {}, "_meta": meta},
        )
        async with self._subscribed(wanted) as queue:
            while True:
                await _notify(context, "notifications/tasks", {**await queue.get(), "_meta": meta})

    @asynccontextmanager
    async def _subscribed(self, wanted: list[str]) -> AsyncGenerator[asyncio.Queue[dict[str, Any]]]:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._listeners[queue] = wanted
        self._changed.set()
        try:
            yield queue
        finally:
            del self._listeners[queue]
            self._changed.set()

    @property
    def listener_count(self) -> int:
        """Streams that are subscribed to tasks."""
        return sum(bool(task_ids) for task_ids in self._listeners.values())

    def _find(self, context: Context, method: str, params: TaskParams) -> UpstreamTask:
        self._record_request(method, params)
        capabilities = context.session.client_capabilities
        if TASKS_EXTENSION not in ((capabilities and capabilities.extensions) or {}):
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "The tasks extension was not declared.")
        if context.request is not None and context.request.headers["mcp-name"] != params.task_id:
            raise MCPError(-32020, "Mcp-Name is not the task's id.")
        if params.task_id not in self.tasks:
            raise MCPError(INVALID_PARAMS, "Task not found")
        return self.tasks[params.task_id]

    def _task_json(self, task: UpstreamTask) -> dict[str, Any]:
        poll_interval = {} if self._poll_ms is None else {"pollIntervalMs": self._poll_ms}
        return {
            "taskId": task.id,
            "createdAt": CREATED,
            "lastUpdatedAt": CREATED,
            "ttlMs": None,
            **poll_interval,
            **task.state,
        }

    def _record_request(self, method: str, params: Any) -> None:
        self.requests.append((method, params))
        self._changed.set()


class _Notification(types.Notification[dict[str, Any], str]):
    pass


async def _notify(context: Context, method: str, params: Mapping[str, Any]) -> None:
    notification: Any = _Notification(method=method, params=dict(params))
    await context.session.send_notification(notification, related_request_id=context.request_id)


def _input_required_result(number: int) -> types.InputRequiredResult:
    asked: types.InputRequests = {"sure": types.ElicitRequest.model_validate(QUESTION)}
    return types.InputRequiredResult(input_requests=asked, request_state=json.dumps({"round": number}))
