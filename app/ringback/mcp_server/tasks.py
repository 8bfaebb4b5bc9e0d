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
from ringback.mcp_server.exchange import TASKS, Exchange
from ringback.mcp_server.gateway import Capabilities, Era, Feature, Gateway, Method, Result
from ringback.mcp_server.refusals import tasks_undeclared
from ringback.mcp_server.task_shapes import TaskShapes

ACKNOWLEDGED: Final[Mapping[str, Any]] = {"resultType": "complete"}
_MODERN: Final[tuple[Era]] = ("modern",)


class UpdateTaskParams(types.RequestParams):
    task_id: str = Field(alias="taskId")
    input_responses: dict[str, Any] = Field(alias="inputResponses")


def feature(gateway: Gateway) -> Feature:
    tasks = Tasks(gateway)
    return Feature(
        methods=(
            Method(name="tasks/get", params=types.GetTaskRequestParams, handler=tasks.get, eras=_MODERN),
            Method(name="tasks/update", params=UpdateTaskParams, handler=tasks.update, eras=_MODERN),
            Method(name="tasks/cancel", params=types.CancelTaskRequestParams, handler=tasks.cancel, eras=_MODERN),
        ),
        tasks=tasks,
        advertise=_advertise,
    )


class Tasks:
    """Implements `gateway.TaskAnswers`."""

    at_once = False

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._shapes = TaskShapes(result_retention_seconds=gateway.config.result_retention_seconds)

    def grace_seconds(self, exchange: Exchange) -> float | None:
        if exchange.modern and exchange.declares(TASKS):
            return self._gateway.config.task_grace_seconds
        return None

    async def created(self, exchange: Exchange, call: Call) -> Result:  # noqa: ARG002 - a TaskAnswers' name
        return meta.labelled(self._shapes.created(call, now=self._gateway.clock.now()), call)

    async def get(self, exchange: Exchange, params: types.GetTaskRequestParams) -> Result:
        call = await self._task(exchange, params.task_id)
        return {**await detailed(self._gateway, self._shapes, exchange.caller, call), **ACKNOWLEDGED}

    async def update(self, exchange: Exchange, params: UpdateTaskParams) -> Result:
        """Answers to what is not asked, or not any more, are ignored, whatever they look like."""
        call = await self._task(exchange, params.task_id)
        if wanted := {key: each for key, each in params.input_responses.items() if key in call.input_requests}:
            with suppress(CallEnded):  # then nothing is asked any more
                await self._gateway.answers.answer(exchange.caller, call.id, wanted)
        return dict(ACKNOWLEDGED)

    async def cancel(self, exchange: Exchange, params: types.CancelTaskRequestParams) -> Result:
        call = await self._task(exchange, params.task_id)
        await self._gateway.calls.cancel(exchange.caller, call.id)
        return dict(ACKNOWLEDGED)

    async def _task(self, exchange: Exchange, task_id: str) -> Call:
        _check_routing(exchange, task_id)
        require_tasks(exchange)
        return await task_of(self._gateway, exchange, task_id)


async def detailed(gateway: Gateway, shapes: TaskShapes, caller: Caller, call: Call) -> dict[str, Any]:
    """The DetailedTask that tasks/get and notifications/tasks have in common."""
    result = await gateway.stored_result(caller, call)
    return meta.labelled(shapes.detailed(call, result, now=gateway.clock.now()), call)


async def task_of(gateway: Gateway, exchange: Exchange, task_id: str) -> Call:
    """The caller's own task; -32602 when there is none (any more)."""
    try:
        return await gateway.calls.get(exchange.caller, task_id)
    except NotFound:
        raise MCPError(INVALID_PARAMS, "Failed to retrieve task: no task of yours has this id.") from None
    except Gone as gone:
        raise MCPError(INVALID_PARAMS, f"Failed to retrieve task: {gone.detail}") from None


def require_tasks(exchange: Exchange) -> None:
    """Raise -32021 unless this very request declares the extension (ext-tasks, Protocol Errors)."""
    if not exchange.declares(TASKS):
        raise tasks_undeclared()


def _check_routing(exchange: Exchange, task_id: str) -> None:
    """Proxies route by `Mcp-Name` (ext-tasks, Routing Headers); the SDK judges it for its own methods only.

    Clients must send it, and FastMCP 4.1's does not: one that is missing misleads nobody, and is let pass.
    """
    request = cast("Request", exchange.context.request)
    if decode_header_value(request.headers.get(MCP_NAME_HEADER, task_id)) != task_id:
        raise MCPError(HEADER_MISMATCH, "The header Mcp-Name must be the task's id, as in params.taskId.")


def _advertise(era: Era, capabilities: Capabilities) -> None:
    if era == "modern":
        cast("dict[str, Any]", capabilities.setdefault("extensions", {}))[TASKS] = {}
