"""Legacy tasks (experimental in 2025-11-25), for clients of that version.

`params.task` always turns a call of an upstream's tool into a task at once. Every such tool is listed with `taskSupport:
optional`, whatever the upstream says, because each call is durable here; or with `required` if it is configured as `task_only`.
Then

    tasks/get       returns the task
    tasks/result    waits for the end and returns the tool's result; questions are sent on its stream meanwhile
    tasks/list      lists the caller's calls, newest first; offered only with authentication
    tasks/cancel    cancels the task before it responds, whatever the upstream still does

The session that created the task gets `notifications/tasks/status`, and progress under the token of the request, while the task
runs, if its own stream is open at the node that created the task. Clients must not rely on these notifications.

Differences from the specification:

    ttl                     the requested ttl is ignored: all results of this service are kept equally long
    built-in tools          are listed without taskSupport, and return their result even if called as a task
    JSON-RPC errors         carry no related-task, because they have no `_meta`
    a cancelled task        has no result; tasks/result returns the error -32603 with `data.outcome: cancelled`
    client-hosted tasks     are not created: an elicitation is a plain request
    CreateTaskResult        also has the members of an earlier draft, which FastMCP 2.14 reads: `content` and
                            `_meta['modelcontextprotocol.io/task']`. Other clients ignore them
"""

from functools import partial
from typing import Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

from ringback.domain.call import Call, Progress
from ringback.domain.call_resumes import ResumeSurface
from ringback.domain.call_rows import CallFilter
from ringback.domain.cursor import CursorList, decode_id_cursor, encode_cursor
from ringback.domain.errors import CallEnded, ShuttingDown
from ringback.domain.ids import CallId
from ringback.domain.principal import ANONYMOUS_PRINCIPAL
from ringback.domain.wait_words import describe_pause
from ringback.mcp_server import meta
from ringback.mcp_server.change_publisher import subscribe_call_changes
from ringback.mcp_server.event_source import EventSources
from ringback.mcp_server.gateway import LEGACY_ONLY, Capabilities, Era, Feature, Gateway, MethodBinding, Result
from ringback.mcp_server.jsonrpc_errors import method_not_found
from ringback.mcp_server.legacy_task_elicitation import LegacyTaskElicitation, TaskResultWaiters
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.session_notifications import detach_context, get_session_notifications, send_to_session
from ringback.mcp_server.task_serializer import TaskSerializer, progress_params, related_task_meta
from ringback.mcp_server.tasks import get_own_task
from ringback.mcp_server.tool_call_responder import build_call_result
from ringback.protocol.tasks import DRAFT_TASK_META_KEY
from ringback.services.limits.unread_responses import reserve_parsed_result

LEGACY_TASKS_VERSION: Final = "2025-11-25"
"""The only protocol version with these tasks."""
TASK_PAGE_SIZE: Final = 50
"""The page size of tasks/list; the same as in REST."""
IMMEDIATE_RESPONSE_META_KEY: Final = "io.modelcontextprotocol/model-immediate-response"


def build_feature(gateway: Gateway) -> Feature:
    tasks = LegacyTasks(gateway)
    return Feature(
        methods=(
            MethodBinding("tasks/get", types.GetTaskRequestParams, tasks.get_task, eras=LEGACY_ONLY),
            MethodBinding("tasks/result", types.GetTaskPayloadRequestParams, tasks.get_task_result, eras=LEGACY_ONLY),
            MethodBinding("tasks/list", types.PaginatedRequestParams, tasks.list_tasks, eras=LEGACY_ONLY),
            MethodBinding("tasks/cancel", types.CancelTaskRequestParams, tasks.cancel_task, eras=LEGACY_ONLY),
        ),
        task_responder=tasks,
        advertise_capabilities=tasks.advertise_capabilities,
        adapt_tool=_add_task_support,
    )


class LegacyTasks:
    """Implements `gateway.TaskResponder`."""

    responds_immediately = True

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._serializer = TaskSerializer(result_retention_seconds=gateway.config.result_retention_seconds)
        self._event_sources = EventSources(gateway)
        self._result_waiters = TaskResultWaiters()

    # -- tools/call --

    def get_grace_seconds(self, context: RequestContext) -> float | None:
        # null counts as absent, as in the SDK
        return 0.0 if _supports_tasks(context) and context.raw_params.get("task") is not None else None

    async def create_task_result(self, context: RequestContext, call: Call) -> Result:
        self._start_status_notifications(context, call)
        is_paused = await self._gateway.upstream_controls.is_paused(call)
        hint = f"The tool '{call.tool}' runs in the background as task {call.id}. Its result is available when it ends."
        if is_paused:
            hint = f"{describe_pause(call.upstream)} It is task {call.id}. Its result is available when it ends."
        now = self._gateway.clock.now()
        created = self._serializer.legacy_create_task_result(call, now=now, is_paused=is_paused)
        result = meta.with_call_meta(
            {
                **created,
                "content": [{"type": "text", "text": hint}],
                "_meta": {
                    **related_task_meta(call),
                    IMMEDIATE_RESPONSE_META_KEY: hint,
                    DRAFT_TASK_META_KEY: {"taskId": call.id, "status": created["task"]["status"]},
                },
            },
            call,
        )
        return await self._event_sources.add_to_created_task(context, result, call)

    # -- tasks/… --

    async def get_task(self, context: RequestContext, params: types.GetTaskRequestParams) -> Result:
        call = await self._read_task(context, params.task_id)
        return await self._event_sources.add_to_meta(await self._serialize_task(call), call)

    async def get_task_result(self, context: RequestContext, params: types.GetTaskPayloadRequestParams) -> Result:
        """The tool's result, or the error of the call, once the task has ended."""
        call = await self._read_task(context, params.task_id)
        if not call.is_final:
            await self._wait_for_end(context, call)
            call = await self._read_task(context, params.task_id)
        if not call.is_final:
            raise ShuttingDown(
                "The service is shutting down. The task continues; send the request again in a few seconds."
            )
        reserve_parsed_result(context.asgi_state, context.caller.principal, call)
        stored_result = await self._gateway.read_stored_result(context.caller, call)
        self._gateway.call_resumes.record_read(call, ResumeSurface.MCP_TASK)
        return meta.with_meta(build_call_result(call, stored_result), related_task_meta(call))

    async def list_tasks(self, context: RequestContext, params: types.PaginatedRequestParams) -> Result:
        _require_tasks_version(context)
        if context.caller.principal == ANONYMOUS_PRINCIPAL:
            raise MCPError(METHOD_NOT_FOUND, "Method not found: tasks/list requires authentication.")
        last_id = decode_id_cursor(CursorList.CALLS, params.cursor)
        page = await self._gateway.calls.list_calls(
            context.caller, CallFilter(), position=last_id, limit=TASK_PAGE_SIZE
        )
        next_page = (
            {} if page.next_position is None else {"nextCursor": encode_cursor(CursorList.CALLS, page.next_position)}
        )
        return {
            "tasks": [self._serializer.legacy_task(call, now=self._gateway.clock.now()) for call in page],
            **next_page,
        }

    async def cancel_task(self, context: RequestContext, params: types.CancelTaskRequestParams) -> Result:
        call = await self._read_task(context, params.task_id, is_changed=True)
        try:
            return await self._serialize_task(await self._gateway.calls.cancel_immediately(context.caller, call.id))
        except CallEnded as ended:
            raise MCPError(INVALID_PARAMS, f"Cannot cancel task: {ended.detail}") from None

    def advertise_capabilities(self, era: Era, capabilities: Capabilities) -> None:
        if era == "legacy":
            listed: Capabilities = {"list": {}} if self._gateway.config.authentication_enabled else {}
            capabilities["tasks"] = {**listed, "cancel": {}, "requests": {"tools": {"call": {}}}}

    async def _serialize_task(self, call: Call) -> Result:
        is_paused = await self._gateway.upstream_controls.is_paused(call)
        task = self._serializer.legacy_task(call, now=self._gateway.clock.now(), is_paused=is_paused)
        return meta.with_call_meta(task, call)

    async def _read_task(self, context: RequestContext, task_id: str, *, is_changed: bool = False) -> Call:
        _require_tasks_version(context)
        return await get_own_task(self._gateway, context, task_id, is_changed=is_changed)

    async def _wait_for_end(self, context: RequestContext, call: Call) -> None:
        """Wait until the call ends or the service stops, and send the call's questions to the client meanwhile."""
        with (
            subscribe_call_changes(self._gateway, context.caller, call.id) as call_changes,
            self._result_waiters.register_waiter(context, call) as superseded,
        ):
            await LegacyTaskElicitation(self._gateway, context, call_changes).run(superseded)

    # -- notifications --

    def _start_status_notifications(self, context: RequestContext, call: Call) -> None:
        notifications = get_session_notifications(self._gateway, context)
        if notifications.has_capacity_for(call.id):
            publish = partial(self._publish_status_changes, detach_context(context), call.id, call.progress)
            notifications.start_publisher(call.id, publish)

    async def _publish_status_changes(self, context: RequestContext, call_id: CallId, reached: Progress | None) -> None:
        with subscribe_call_changes(self._gateway, context.caller, call_id) as call_changes:
            while call := await call_changes.next_change():
                if _has_advanced(call, reached):
                    reached = call.progress
                    await _send_progress(context, call)
                await send_to_session(context, "notifications/tasks/status", await self._serialize_task(call))


def _has_advanced(call: Call, reached: Progress | None) -> bool:
    """Whether a progress notification may follow: they increase, and stop at the end of the task (MUSTs of the protocol)."""
    if call.progress is None or call.is_final:
        return False
    return reached is None or call.progress.progress > reached.progress


async def _send_progress(context: RequestContext, call: Call) -> None:
    """Send the progress of the task under the token of the request that created it, if it has one."""
    token = context.meta.get("progress_token")
    if token is not None and call.progress is not None:
        params = {"progressToken": token, **progress_params(call.progress), "_meta": related_task_meta(call)}
        await send_to_session(context, "notifications/progress", params)


def _add_task_support(context: RequestContext, tool: dict[str, Any]) -> dict[str, Any]:
    """Replace the upstream's task support, which concerns its own tasks, by ours."""
    rest = {key: value for key, value in tool.items() if key != "execution"}
    return {**rest, "execution": {"taskSupport": "optional"}} if _supports_tasks(context) else rest


def _supports_tasks(context: RequestContext) -> bool:
    return context.sdk_context.protocol_version == LEGACY_TASKS_VERSION


def _require_tasks_version(context: RequestContext) -> None:
    if not _supports_tasks(context):
        raise method_not_found(context.sdk_context.method)
