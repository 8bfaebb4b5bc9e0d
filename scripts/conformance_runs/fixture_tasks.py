"""The tasks extension (SEP-2663) in memory, and the tools of the suite's tasks scenarios.

It shares no code with the service or with `tests.support.task_upstream`, so that an error there does not hide itself here.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY, RequestParams
from pydantic import Field

from ringback.domain.clock import Clock, format_iso
from scripts.conformance_runs.fixture_tools import (
    NAME_QUESTION,
    Context,
    FixtureTool,
    Json,
    is_modern,
    make_input_required,
    question,
    read_answers,
    text,
)

TASKS: Final = "io.modelcontextprotocol/tasks"
HEADER_MISMATCH: Final = -32020
POLL_MILLISECONDS: Final = 100
FAILS_AFTER_SECONDS: Final = 1.0
"""As the suite expects of failing_job."""


class TaskParams(RequestParams):
    task_id: str = Field(alias="taskId")


class UpdateParams(TaskParams):
    input_responses: Json = Field(alias="inputResponses")


@dataclass(slots=True, eq=False)
class FixtureTask:
    id: str
    created_at: datetime
    state: Json = field(default_factory=lambda: {"status": "working"})
    input_responses: Json = field(default_factory=dict[str, Any])
    work: "asyncio.Task[None] | None" = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    async def request_input(self, questions: Mapping[str, Json]) -> Json:
        """Wait until all requests are answered."""
        self.state = {"status": "input_required", "inputRequests": dict(questions)}
        await self.answered.wait()
        return self.input_responses

    def accept_answers(self, responses: Json) -> None:
        """Store the answers to open requests; the others stay open."""
        questions = self.state.get("inputRequests", {})
        self.input_responses |= {key: response for key, response in responses.items() if key in questions}
        rest = {key: request for key, request in questions.items() if key not in self.input_responses}
        if rest:
            self.state = {"status": "input_required", "inputRequests": rest}
        elif questions:
            self.state = {"status": "working"}
            self.answered.set()


Work = Callable[[FixtureTask, Json], Awaitable[types.CallToolResult]]
"""A tool's work as a task, with its arguments."""


async def compute(_task: FixtureTask, arguments: Json) -> types.CallToolResult:
    await asyncio.sleep(float(arguments.get("seconds", 0)))
    return text(f"Computed {arguments.get('label', 'it')}.")


async def fail(_task: FixtureTask, _arguments: Json) -> types.CallToolResult:
    await asyncio.sleep(FAILS_AFTER_SECONDS)
    return types.CallToolResult(content=[types.TextContent(type="text", text="The job failed.")], is_error=True)


async def break_down(_task: FixtureTask, _arguments: Json) -> types.CallToolResult:
    raise MCPError(INTERNAL_ERROR, "The job broke down.")


async def confirm_delete(task: FixtureTask, arguments: Json) -> types.CallToolResult:
    sure = question(f"Delete {arguments.get('filename')}?", {"confirm": {"type": "boolean"}})
    given = await task.request_input({"confirm": sure})
    return text(f"Deleted: {given['confirm'].get('content')}")


async def multi_input(task: FixtureTask, _arguments: Json) -> types.CallToolResult:
    given = await task.request_input({"first": NAME_QUESTION, "second": NAME_QUESTION})
    return text(f"Got {len(given)} answers.")


async def greet_later(_task: FixtureTask, arguments: Json) -> types.CallToolResult:
    return text(f"Hello, {arguments['user_name']}!")


class FixtureTasks:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: dict[str, FixtureTask] = {}

    def serve(self, server: Server[Any]) -> None:
        server.extensions[TASKS] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", UpdateParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)

    def tools(self) -> dict[str, FixtureTool]:
        name: Json = {"name": {"type": "string"}}
        seconds: Json = {"seconds": {"type": "number"}, "label": {"type": "string"}}
        filename: Json = {"filename": {"type": "string"}}
        return {
            "greet": FixtureTool(run=greet, description="Greets at once", properties=name, required=("name",)),
            "slow_compute": FixtureTool(run=self._as_task(compute), description="Takes its time", properties=seconds),
            "failing_job": FixtureTool(run=self._as_task(fail, required=True), description="Fails"),
            "protocol_error_job": FixtureTool(run=self._as_task(break_down), description="Breaks down"),
            "confirm_delete": FixtureTool(
                run=self._as_task(confirm_delete), description="Asks before it deletes", properties=filename
            ),
            "multi_input": FixtureTool(run=self._as_task(multi_input), description="Asks two things at once"),
            "test_tool_with_task": FixtureTool(run=self._require_input, description="Asks first"),
        }

    # -- tools/call --

    def _as_task(self, work: Work, *, required: bool = False) -> Callable[..., Awaitable[Any]]:
        async def run(context: Context, params: types.CallToolRequestParams) -> Any:
            if _declared(context):
                return self._created(work, params.arguments or {})
            if required:
                raise _undeclared()
            return await work(FixtureTask(id="", created_at=self._clock.now()), params.arguments or {})

        return run

    async def _require_input(self, context: Context, params: types.CallToolRequestParams) -> Any:
        if not _declared(context):
            raise _undeclared()
        given = read_answers(params).get("user_name")
        if given is None:
            return make_input_required({"user_name": NAME_QUESTION}, state="asked")
        return self._created(greet_later, {"user_name": given["content"]["name"]})

    def _created(self, work: Work, arguments: Json) -> Json:
        task = FixtureTask(id=secrets.token_urlsafe(16), created_at=self._clock.now())
        self._tasks[task.id] = task
        created = {"resultType": "task", **self._task_json(task)}
        task.work = asyncio.create_task(_carry_out(task, work, arguments))
        return created

    # -- tasks/… --

    async def _get(self, context: Context, params: TaskParams) -> Json:
        return {"resultType": "complete", **self._task_json(self._find(context, params))}

    async def _update(self, context: Context, params: UpdateParams) -> Json:
        self._find(context, params).accept_answers(params.input_responses)
        return {"resultType": "complete"}

    async def _cancel(self, context: Context, params: TaskParams) -> Json:
        task = self._find(context, params)
        if task.work is not None and not task.work.done():
            task.work.cancel()
            task.state = {"status": "cancelled"}
        return {"resultType": "complete"}

    def _find(self, context: Context, params: TaskParams) -> FixtureTask:
        if not _declared(context):
            raise _undeclared()
        if context.request is not None and context.request.headers.get("mcp-name") != params.task_id:
            raise MCPError(HEADER_MISMATCH, "Mcp-Name is not the task's id.")
        if params.task_id not in self._tasks:
            raise MCPError(INVALID_PARAMS, "There is no such task.")
        return self._tasks[params.task_id]

    def _task_json(self, task: FixtureTask) -> Json:
        return {
            "taskId": task.id,
            "createdAt": format_iso(task.created_at),
            "lastUpdatedAt": format_iso(self._clock.now()),
            "ttlMs": None,
            "pollIntervalMs": POLL_MILLISECONDS,
            **task.state,
        }


async def greet(_context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    return text(f"Hello, {(params.arguments or {}).get('name')}!")


async def _carry_out(task: FixtureTask, work: Work, arguments: Json) -> None:
    try:
        result = await work(task, arguments)
    except MCPError as error:
        task.state = {"status": "failed", "error": error.error.model_dump(exclude_none=True)}
    else:
        task.state = {"status": "completed", "result": result.model_dump(by_alias=True, exclude_none=True)}


def _declared(context: Context) -> bool:
    capabilities = context.session.client_capabilities
    return is_modern(context) and TASKS in ((capabilities and capabilities.extensions) or {})


def _undeclared() -> MCPError:
    return MCPError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        "This takes the tasks extension.",
        {"requiredCapabilities": {"extensions": {TASKS: {}}}},
    )
