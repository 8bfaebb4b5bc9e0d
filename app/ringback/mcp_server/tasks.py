"""Modern tasks: the extension io.modelcontextprotocol/tasks (SEP-2663).

A task is a call, and its taskId is the call id. `tools/call` returns a task when the grace time is over and the request
declares the extension. Then

    tasks/get       returns the task with its result, its error or its questions
    tasks/update    answers questions; an answer without an open question is ignored
    tasks/cancel    requests the end of the task, which may come later

Each request is checked by its caller and the capabilities that it declares. Another caller's id is refused like an unknown one.
Requirements of the extension that are met differently, or not at all:

    -32021 for a task-only tool                      only for tools configured as `task_only`; for any other task-only tool a
                                                     client without tasks gets a pending result
    notifications/progress and /message              are not sent for modern tasks: statusMessage carries the progress
    a task that fails when its ttlMs is over         has ended by then: the deadline of its call comes first
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import HEADER_MISMATCH, INVALID_PARAMS
from pydantic import Field
from starlette.requests import Request

from ringback.domain.call import Call
from ringback.domain.call_resumes import ResumeSurface
from ringback.domain.errors import CallEnded, Gone, NotFound
from ringback.domain.principal import Caller
from ringback.mcp_server import meta
from ringback.mcp_server.event_source import EventSources
from ringback.mcp_server.gateway import MODERN_ONLY, Capabilities, Era, Feature, Gateway, MethodBinding, Result
from ringback.mcp_server.jsonrpc_errors import tasks_capability_missing
from ringback.mcp_server.request_context import TASKS_EXTENSION, RequestContext
from ringback.mcp_server.task_serializer import TaskSerializer
from ringback.services.limits.unread_responses import reserve_parsed_result

COMPLETE_RESULT: Final[Mapping[str, Any]] = {"resultType": "complete"}


class UpdateTaskParams(types.RequestParams):
    task_id: str = Field(alias="taskId")
    input_responses: dict[str, Any] = Field(alias="inputResponses")


def build_feature(gateway: Gateway) -> Feature:
    tasks = ModernTasks(gateway)
    return Feature(
        methods=(
            MethodBinding("tasks/get", types.GetTaskRequestParams, tasks.get_task, eras=MODERN_ONLY),
            MethodBinding("tasks/update", UpdateTaskParams, tasks.update_task, eras=MODERN_ONLY),
            MethodBinding("tasks/cancel", types.CancelTaskRequestParams, tasks.cancel_task, eras=MODERN_ONLY),
        ),
        task_responder=tasks,
        advertise_capabilities=_advertise_tasks,
    )


class ModernTasks:
    """Implements `gateway.TaskResponder`."""

    responds_immediately = False

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._serializer = TaskSerializer(result_retention_seconds=gateway.config.result_retention_seconds)
        self._event_sources = EventSources(gateway)

    def get_grace_seconds(self, context: RequestContext) -> float | None:
        if context.is_modern and context.declares_extension(TASKS_EXTENSION):
            return self._gateway.config.task_grace_seconds
        return None

    async def create_task_result(self, context: RequestContext, call: Call) -> Result:
        is_paused = await self._gateway.upstream_controls.is_paused(call)
        task = self._serializer.create_task_result(call, now=self._gateway.clock.now(), is_paused=is_paused)
        return await self._event_sources.add_to_created_task(context, meta.with_call_meta(task, call), call)

    async def get_task(self, context: RequestContext, params: types.GetTaskRequestParams) -> Result:
        call = await self._read_task(context, params.task_id)
        reserve_parsed_result(context.asgi_state, context.caller.principal, call)
        task = await build_detailed_task(self._gateway, self._serializer, context.caller, call)
        self._gateway.call_resumes.record_read(call, ResumeSurface.MCP_TASK)
        return {**await self._event_sources.add_to_meta(task, call), **COMPLETE_RESULT}

    async def update_task(self, context: RequestContext, params: UpdateTaskParams) -> Result:
        """Answer questions; an answer without an open question is ignored, whatever its form."""
        call = await self._read_task(context, params.task_id, is_changed=True)
        if responses := {key: each for key, each in params.input_responses.items() if key in call.input_requests}:
            with suppress(CallEnded):  # an ended call has no open questions
                await self._gateway.input_answers.answer_input(context.caller, call.id, responses)
        return dict(COMPLETE_RESULT)

    async def cancel_task(self, context: RequestContext, params: types.CancelTaskRequestParams) -> Result:
        call = await self._read_task(context, params.task_id, is_changed=True)
        await self._gateway.calls.cancel_call(context.caller, call.id)
        return dict(COMPLETE_RESULT)

    async def _read_task(self, context: RequestContext, task_id: str, *, is_changed: bool = False) -> Call:
        _check_name_header(context, task_id)
        require_tasks_extension(context)
        return await get_own_task(self._gateway, context, task_id, is_changed=is_changed)


async def build_detailed_task(gateway: Gateway, shapes: TaskSerializer, caller: Caller, call: Call) -> dict[str, Any]:
    """The DetailedTask of tasks/get and notifications/tasks."""
    result = await gateway.read_stored_result(caller, call)
    is_paused = await gateway.upstream_controls.is_paused(call)
    return meta.with_call_meta(shapes.detailed_task(call, result, now=gateway.clock.now(), is_paused=is_paused), call)


async def get_own_task(gateway: Gateway, context: RequestContext, task_id: str, *, is_changed: bool) -> Call:
    """The caller's own task; raises -32602 if it does not exist or has expired.

    A request that changes the task needs the scope `calls`, any other one `read`.
    """
    read = gateway.calls.get_for_waiting if is_changed else gateway.calls.get_call
    try:
        return await read(context.caller, task_id)
    except NotFound:
        raise MCPError(INVALID_PARAMS, "Failed to retrieve task: you have no task with this id.") from None
    except Gone as gone:
        raise MCPError(INVALID_PARAMS, f"Failed to retrieve task: {gone.detail}") from None


def require_tasks_extension(context: RequestContext) -> None:
    """Raise -32021 unless this request declares the extension (ext-tasks, Protocol Errors)."""
    if not context.declares_extension(TASKS_EXTENSION):
        raise tasks_capability_missing()


def _check_name_header(context: RequestContext, task_id: str) -> None:
    """Check `Mcp-Name`, by which proxies route (ext-tasks, Routing Headers); the SDK checks it only for its own methods.

    The specification requires the header, but FastMCP 4.1 does not send it. A missing header cannot misroute, so it is
    accepted.
    """
    request = cast("Request", context.sdk_context.request)
    if decode_header_value(request.headers.get(MCP_NAME_HEADER, task_id)) != task_id:
        raise MCPError(HEADER_MISMATCH, "The header Mcp-Name must be the task's id, as in params.taskId.")


def _advertise_tasks(era: Era, capabilities: Capabilities) -> None:
    if era == "modern":
        cast("dict[str, Any]", capabilities.setdefault("extensions", {}))[TASKS_EXTENSION] = {}
