"""The tasks of 2025-11-25 (experimental there), served to clients of that version.

`params.task` makes any call of an upstream's tool a task, at once and always: every such tool is listed as `taskSupport:
optional`, whatever the upstream says, because a call is as durable here one way as the other; or as `required`, if it is
configured so (`task_only`, `tools`). Then

    tasks/get       the task
    tasks/result    waits for the end, and is what the tool said; meanwhile it is also what questions come along
    tasks/list      the caller's calls, newest first; offered only where callers are told apart
    tasks/cancel    ends the task: it is cancelled when this is answered, whatever the upstream still does

What happens to the task is also told in the session that made it: `notifications/tasks/status`, and progress under the token of
the request, for as long as the task runs.

Where this differs from the text, or goes beyond it:

    ttl                     the one asked for is overridden: results are kept as long as all others of this service
    tools of our own        are listed without taskSupport, and answer with their result also when they are called as a task
    JSON-RPC errors         carry no related-task: there is no `_meta` in them
    a cancelled task        has no result; tasks/result is the error -32603 with `data.outcome: cancelled`
    client-hosted tasks     are not made: an elicitation is a plain request
"""

from typing import Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

from ringback.domain.call import Call
from ringback.domain.call_rows import CallFilter
from ringback.domain.cursor import List, decode_id, encode
from ringback.domain.errors import CallEnded, ShuttingDown
from ringback.domain.principal import ANONYMOUS
from ringback.mcp_server import meta
from ringback.mcp_server.answers import plain
from ringback.mcp_server.exchange import Exchange
from ringback.mcp_server.following import following
from ringback.mcp_server.gateway import Capabilities, Era, Feature, Gateway, Method, Result
from ringback.mcp_server.legacy_questions import Asking, Waiters
from ringback.mcp_server.refusals import unknown_method
from ringback.mcp_server.task_shapes import TaskShapes, progress_params, related_task
from ringback.mcp_server.tasks import task_of
from ringback.mcp_server.telling import tell_session, told_in_session

VERSION: Final = "2025-11-25"
"""The one version of the protocol with these tasks."""
PAGE: Final = 50
"""Tasks on a page of tasks/list; as many as REST's pages have."""
IMMEDIATE_RESPONSE: Final = "io.modelcontextprotocol/model-immediate-response"
_LEGACY: Final[tuple[Era]] = ("legacy",)


def feature(gateway: Gateway) -> Feature:
    tasks = LegacyTasks(gateway)
    return Feature(
        methods=(
            Method(name="tasks/get", params=types.GetTaskRequestParams, handler=tasks.get, eras=_LEGACY),
            Method(name="tasks/result", params=types.GetTaskPayloadRequestParams, handler=tasks.result, eras=_LEGACY),
            Method(name="tasks/list", params=types.PaginatedRequestParams, handler=tasks.list, eras=_LEGACY),
            Method(name="tasks/cancel", params=types.CancelTaskRequestParams, handler=tasks.cancel, eras=_LEGACY),
        ),
        tasks=tasks,
        advertise=tasks.advertise,
        shape_tool=_shape_tool,
    )


class LegacyTasks:
    """Implements `gateway.TaskAnswers`."""

    at_once = True

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._shapes = TaskShapes(result_retention_seconds=gateway.config.result_retention_seconds)
        self._waiters = Waiters()

    # -- tools/call --

    def grace_seconds(self, exchange: Exchange) -> float | None:
        return 0.0 if _speaks_tasks(exchange) and "task" in (exchange.context.params or {}) else None

    async def created(self, exchange: Exchange, call: Call) -> Result:
        self._tell_in_session(exchange, call)
        hint = f"The tool '{call.tool}' runs in the background as task {call.id}. Its result comes when it ends."
        created = self._shapes.legacy_created(call, now=self._gateway.clock.now())
        return meta.labelled({**created, "_meta": {**related_task(call), IMMEDIATE_RESPONSE: hint}}, call)

    # -- tasks/… --

    async def get(self, exchange: Exchange, params: types.GetTaskRequestParams) -> Result:
        return self._task(await self._own(exchange, params.task_id))

    async def result(self, exchange: Exchange, params: types.GetTaskPayloadRequestParams) -> Result:
        """What the call of the tool would have been answered, once that is known."""
        call = await self._own(exchange, params.task_id)
        if not call.final:
            await self._wait(exchange, call)
            call = await self._own(exchange, params.task_id)
        if not call.final:
            raise ShuttingDown("The service is shutting down. The task goes on; ask again in a few seconds.")
        stored = await self._gateway.stored_result(exchange.caller, call)
        return meta.extended(plain(call, stored), related_task(call))

    async def list(self, exchange: Exchange, params: types.PaginatedRequestParams) -> Result:
        _require_tasks(exchange)
        if exchange.caller.principal == ANONYMOUS:
            raise MCPError(METHOD_NOT_FOUND, "Method not found: tasks are listed only where callers are authenticated.")
        before = decode_id(List.CALLS, params.cursor)
        found = await self._gateway.calls.page(exchange.caller, CallFilter(), before=before, limit=PAGE)
        more = {} if found.next_place is None else {"nextCursor": encode(List.CALLS, found.next_place)}
        return {"tasks": [self._shapes.legacy_task(call, now=self._gateway.clock.now()) for call in found], **more}

    async def cancel(self, exchange: Exchange, params: types.CancelTaskRequestParams) -> Result:
        call = await self._own(exchange, params.task_id)
        try:
            return self._task(await self._gateway.calls.cancel_for_good(exchange.caller, call.id))
        except CallEnded as ended:
            raise MCPError(INVALID_PARAMS, f"Cannot cancel task: {ended.detail}") from None

    def advertise(self, era: Era, capabilities: Capabilities) -> None:
        if era == "legacy":
            listed: Capabilities = {"list": {}} if self._gateway.config.callers_identified else {}
            capabilities["tasks"] = {**listed, "cancel": {}, "requests": {"tools": {"call": {}}}}

    def _task(self, call: Call) -> Result:
        return meta.labelled(self._shapes.legacy_task(call, now=self._gateway.clock.now()), call)

    async def _own(self, exchange: Exchange, task_id: str) -> Call:
        _require_tasks(exchange)
        return await task_of(self._gateway, exchange, task_id)

    async def _wait(self, exchange: Exchange, call: Call) -> None:
        """Until the call has ended, its questions put to the client meanwhile; or until the service stops."""
        with (
            following(self._gateway, exchange.caller, call.id) as calls,
            self._waiters.waiting(exchange, call) as given_up,
        ):
            await Asking(self._gateway, exchange, calls).run(given_up)

    # -- what is told unasked --

    def _tell_in_session(self, exchange: Exchange, call: Call) -> None:
        told = told_in_session(exchange.context, self._gateway.background)
        if told.has_room_for(call.id):
            told.start(call.id, lambda: self._tell(exchange, call))

    async def _tell(self, exchange: Exchange, started: Call) -> None:
        token, progress = exchange.meta.get("progress_token"), started.progress
        with following(self._gateway, exchange.caller, started.id) as calls:
            while call := await calls.next():
                if token is not None and call.progress is not None and call.progress != progress:
                    progress = call.progress
                    params = {"progressToken": token, **progress_params(progress), "_meta": related_task(call)}
                    await tell_session(exchange.context, "notifications/progress", params)
                await tell_session(exchange.context, "notifications/tasks/status", self._task(call))


def _shape_tool(exchange: Exchange, tool: dict[str, Any]) -> dict[str, Any]:
    """What the upstream says of tasks is about its own, and of no use to a client of ours."""
    rest = {key: value for key, value in tool.items() if key != "execution"}
    return {**rest, "execution": {"taskSupport": "optional"}} if _speaks_tasks(exchange) else rest


def _speaks_tasks(exchange: Exchange) -> bool:
    return exchange.context.protocol_version == VERSION


def _require_tasks(exchange: Exchange) -> None:
    if not _speaks_tasks(exchange):
        raise unknown_method(exchange.context.method)
