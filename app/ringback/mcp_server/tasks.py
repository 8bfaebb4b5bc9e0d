"""Tasks of 2026-07-28: the extension io.modelcontextprotocol/tasks (SEP-2663), served.

A task is a call, and its taskId the call's id. `tools/call` answers with one once the grace time is over, if the client said
with that very request that it takes tasks. Then

    tasks/get       the task, with its result, its error, or what it asks
    tasks/update    answers to what it asks; what is not asked is ignored
    tasks/cancel    asks for the end, and says nothing about when it comes

Every request is judged by who sends it and what it declares. Unknown and foreign ids are refused in the same words. What the
extension demands and is answered for elsewhere, or not at all:

    a tool that only runs as a task, -32021          one that is configured so (`task_only`, `tools`): of any other, who takes
                                                     no tasks gets a pending result
    notifications/progress and /message              never sent for a task of this generation: progress is the statusMessage
    a task that fails when its ttlMs is over         it has ended by then: the deadline of its call comes first
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
from ringback.domain.errors import CallEnded, Gone, NotFound
from ringback.domain.principal import Caller
from ringback.mcp_server import meta
from ringback.mcp_server.gateway import Capabilities, Era, Feature, Gateway, MethodBinding, Result
from ringback.mcp_server.jsonrpc_errors import tasks_capability_missing
from ringback.mcp_server.request_context import TASKS_EXTENSION, RequestContext
from ringback.mcp_server.task_serializer import TaskSerializer

COMPLETE_RESULT: Final[Mapping[str, Any]] = {"resultType": "complete"}
MODERN_ONLY: Final[tuple[Era]] = ("modern",)


class UpdateTaskParams(types.RequestParams):
    task_id: str = Field(alias="taskId")
    input_responses: dict[str, Any] = Field(alias="inputResponses")


def build_feature(gateway: Gateway) -> Feature:
    tasks = ModernTasks(gateway)
    return Feature(
        methods=(
            MethodBinding(
                name="tasks/get", params=types.GetTaskRequestParams, handler=tasks.get_task, eras=MODERN_ONLY
            ),
            MethodBinding(name="tasks/update", params=UpdateTaskParams, handler=tasks.update_task, eras=MODERN_ONLY),
            MethodBinding(
                name="tasks/cancel", params=types.CancelTaskRequestParams, handler=tasks.cancel_task, eras=MODERN_ONLY
            ),
        ),
        task_responder=tasks,
        advertise_capabilities=_advertise_tasks,
    )


class ModernTasks:
    """Implements `gateway.TaskAnswers`."""

    responds_immediately = False

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._serializer = TaskSerializer(result_retention_seconds=gateway.config.result_retention_seconds)

    def get_grace_seconds(self, context: RequestContext) -> float | None:
        if context.is_modern and context.declares_extension(TASKS_EXTENSION):
            return self._gateway.config.task_grace_seconds
        return None

    async def create_task_result(self, context: RequestContext, call: Call) -> Result:  # noqa: ARG002 - a TaskAnswers' name
        return meta.with_call_meta(self._serializer.create_task_result(call, now=self._gateway.clock.now()), call)

    async def get_task(self, context: RequestContext, params: types.GetTaskRequestParams) -> Result:
        call = await self._read_task(context, params.task_id)
        return {**await build_detailed_task(self._gateway, self._serializer, context.caller, call), **COMPLETE_RESULT}

    async def update_task(self, context: RequestContext, params: UpdateTaskParams) -> Result:
        """Answers to what is not asked, or not any more, are ignored, whatever they look like."""
        call = await self._read_task(context, params.task_id)
        if responses := {key: each for key, each in params.input_responses.items() if key in call.input_requests}:
            with suppress(CallEnded):  # then nothing is asked any more
                await self._gateway.input_answers.answer_input(context.caller, call.id, responses)
        return dict(COMPLETE_RESULT)

    async def cancel_task(self, context: RequestContext, params: types.CancelTaskRequestParams) -> Result:
        call = await self._read_task(context, params.task_id)
        await self._gateway.calls.cancel_call(context.caller, call.id)
        return dict(COMPLETE_RESULT)

    async def _read_task(self, context: RequestContext, task_id: str) -> Call:
        _check_name_header(context, task_id)
        require_tasks_extension(context)
        return await get_own_task(self._gateway, context, task_id)


async def build_detailed_task(gateway: Gateway, shapes: TaskSerializer, caller: Caller, call: Call) -> dict[str, Any]:
    """The DetailedTask that tasks/get and notifications/tasks have in common."""
    result = await gateway.read_stored_result(caller, call)
    return meta.with_call_meta(shapes.detailed_task(call, result, now=gateway.clock.now()), call)


async def get_own_task(gateway: Gateway, context: RequestContext, task_id: str) -> Call:
    """The caller's own task; -32602 when there is none (any more)."""
    try:
        return await gateway.calls.get_call(context.caller, task_id)
    except NotFound:
        raise MCPError(INVALID_PARAMS, "Failed to retrieve task: no task of yours has this id.") from None
    except Gone as gone:
        raise MCPError(INVALID_PARAMS, f"Failed to retrieve task: {gone.detail}") from None


def require_tasks_extension(context: RequestContext) -> None:
    """Raise -32021 unless this very request declares the extension (ext-tasks, Protocol Errors)."""
    if not context.declares_extension(TASKS_EXTENSION):
        raise tasks_capability_missing()


def _check_name_header(context: RequestContext, task_id: str) -> None:
    """Proxies route by `Mcp-Name` (ext-tasks, Routing Headers); the SDK judges it for its own methods only.

    Clients must send it, and FastMCP 4.1's does not: one that is missing misleads nobody, and is let pass.
    """
    request = cast("Request", context.sdk_context.request)
    if decode_header_value(request.headers.get(MCP_NAME_HEADER, task_id)) != task_id:
        raise MCPError(HEADER_MISMATCH, "The header Mcp-Name must be the task's id, as in params.taskId.")


def _advertise_tasks(era: Era, capabilities: Capabilities) -> None:
    if era == "modern":
        cast("dict[str, Any]", capabilities.setdefault("extensions", {}))[TASKS_EXTENSION] = {}
