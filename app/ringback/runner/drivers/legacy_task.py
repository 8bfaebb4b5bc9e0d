"""The driver for the tasks of 2025-11-25, which the client requests with the call.

    tools/call {task: {ttl}} ──▶ {task: {taskId}} ──▶ handle saved ──▶ tasks/get, tasks/get, … ──▶ tasks/result
                                     notifications/tasks/status shorten the wait between two polls

`tasks/result` blocks until the task ends, and while the task is `input_required` its stream carries the questions. A task
belongs to the authorized principal or, in servers without authorization, to the session. So the driver polls in the session of
the handle first, and in a new session once that one is gone. If the new session does not know the task, the call is `unknown`.

A server on FastMCP 2.14 names the task in the `_meta` of an empty CallToolResult (`protocol.tasks.DRAFT_TASK_META_KEY`).
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from mcp.shared.dispatcher import ProgressFnT

from ringback.domain.call import Call, Handle
from ringback.domain.call_outcome import CANCELLED_COMPLETION, CallCompletion
from ringback.domain.clock import Clock
from ringback.protocol.errors import (
    RequestFailed,
    RequestNotSent,
    SessionNotFound,
    UpstreamError,
)
from ringback.protocol.sessions import LegacySessionId
from ringback.protocol.tasks import (
    CancelledTask,
    EndedLegacyTask,
    TaskAwaitingInput,
    WorkingTask,
    await_poll,
    check_legacy_task_result,
    declares_legacy_tasks,
    find_created_legacy_task_id,
    parse_legacy_task,
    supports_legacy_task,
)
from ringback.runner.drivers.completions import (
    error_to_completion,
    failure_to_completion,
    make_progress_callback,
    result_to_completion,
)
from ringback.runner.drivers.created_task import CreatedTask
from ringback.runner.drivers.driver import CallContext
from ringback.runner.drivers.legacy_elicitation import run_with_elicitations, withdraw_login_request
from ringback.runner.drivers.plain import make_tool_call_params
from ringback.runner.drivers.task_polling import TaskPoller
from ringback.upstreams.session_ports import CallSessionPort, LegacySessionPort, NotificationStreamPort
from ringback.waits import wait_first

LEGACY_TASK_DRIVER: Final = "legacy_task"
"""The driver name in its handles."""
TASK_TTL_MARGIN_SECONDS: Final = 24 * 60 * 60.0
"""How long after the call's deadline the upstream is asked to keep the task: this service may be down at the deadline."""


def runs_as_task(session: CallSessionPort, tool: str) -> bool:
    """Whether calls of this tool run as tasks: the upstream must declare it for tools/call and for this tool."""
    if not declares_legacy_tasks(session.protocol.capabilities):
        return False
    listed = session.get_tool(tool)
    return listed is not None and supports_legacy_task(listed.raw)


class LegacyTaskDriver:
    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._created = CreatedTask(clock)

    async def run_call(self, session: CallSessionPort, context: CallContext) -> CallCompletion:
        on_progress = make_progress_callback(context)  # held until the end: its session has only a weak reference
        handle = _get_handle(context.call) or await self._start_task(session, context, on_progress)
        if isinstance(handle, CallCompletion):
            return handle
        task_id, session_id = handle.data["task_id"], _get_session_id(handle)
        async with (
            session.open_notification_stream({"taskIds": [task_id]}, client_capabilities={}) as notifications,
            _enter_task_session(session, session_id) as legacy_session,
        ):
            try:
                with legacy_session.keep_alive():
                    return await self._follow_task(task_id, legacy_session, context, notifications)
            except SessionNotFound:
                return await self._follow_task(task_id, session.legacy_session, context, notifications)

    async def cancel_call(self, session: CallSessionPort, call: Call) -> CallCompletion | None:
        """Without a task, abandoning the request cancels it. A task is cancelled if the upstream's response says so."""
        if (handle := _get_handle(call) or await self._created.wait_for_handle()) is None:
            return CANCELLED_COMPLETION
        task_id = handle.data["task_id"]
        try:
            async with _enter_task_session(session, _get_session_id(handle)) as legacy_session:
                task = await _cancel_task(legacy_session, task_id)
        except SessionNotFound:
            task = await _cancel_task(session.legacy_session, task_id)
        is_this_task = task.get("taskId", task_id) == task_id
        return CANCELLED_COMPLETION if is_this_task and task.get("status") == "cancelled" else None

    async def _start_task(
        self, session: CallSessionPort, context: CallContext, on_progress: ProgressFnT
    ) -> CallCompletion | Handle:
        """The saved handle, or the completion of a call that became no task."""
        with self._created.expect_response():
            started = await self._request_task(session, context, on_progress)
            if isinstance(started, CallCompletion):
                return started
            self._created.handle = started
        await context.save_handle(started)
        return started

    async def _request_task(
        self, session: CallSessionPort, context: CallContext, on_progress: ProgressFnT
    ) -> CallCompletion | Handle:
        remaining = (context.call.deadline_at - self._clock.now()).total_seconds()
        task = {"ttl": round((max(0.0, remaining) + TASK_TTL_MARGIN_SECONDS) * 1000)}
        try:
            result = await session.send_request(
                "tools/call",
                {**make_tool_call_params(context.call), "task": task},
                on_progress=on_progress,
            )
            task_id = find_created_legacy_task_id(result)
        except RequestFailed as failure:
            return failure_to_completion(failure)
        if task_id is None:
            return result_to_completion(result)
        return make_legacy_task_handle(task_id, session.legacy_session.session_id)

    async def _follow_task(
        self,
        task_id: str,
        legacy_session: LegacySessionPort,
        context: CallContext,
        notifications: NotificationStreamPort | None,
    ) -> CallCompletion:
        execution = _LegacyTaskExecution(task_id, legacy_session, context, notifications, clock=self._clock)
        return await run_with_elicitations(lambda: legacy_session, context, execution.run_until_completion())


class _LegacyTaskExecution:
    """Polls one task in one session until it ends."""

    def __init__(
        self,
        task_id: str,
        legacy_session: LegacySessionPort,
        context: CallContext,
        notifications: NotificationStreamPort | None,
        *,
        clock: Clock,
    ) -> None:
        self._task_id = task_id
        self._params = {"taskId": task_id}
        self._legacy_session = legacy_session
        self._context = context
        self._notifications = notifications
        self._clock = clock
        self._poller = TaskPoller(context, clock=clock)

    async def run_until_completion(self) -> CallCompletion:
        while True:
            try:
                if (completion := await self._poll_task()) is not None:
                    return completion
                self._poller.reset_errors()
            except RequestNotSent:
                raise
            except RequestFailed as failure:
                if (completion := self._poller.complete_if_lost(failure)) is not None:
                    return completion
            await wait_first(self._clock.sleep(self._poller.poll_seconds), self._wait_for_notification())

    async def _poll_task(self) -> CallCompletion | None:
        """The completion once the task has ended. Only tasks/result separates a failed task from an `isError` result."""
        task = await await_poll(self._legacy_session.send_request("tasks/get", self._params))
        await withdraw_login_request(self._context)
        self._poller.set_poll_interval(task.get("pollInterval"))
        match parse_legacy_task(task, self._task_id):
            case WorkingTask(message):
                await self._poller.report_status_message(message)
                return None
            case CancelledTask():
                return CANCELLED_COMPLETION
            case TaskAwaitingInput():
                return await self._fetch_result(awaits_input=True)
            case EndedLegacyTask():
                return await self._fetch_result(awaits_input=False)

    async def _fetch_result(self, *, awaits_input: bool) -> CallCompletion | None:
        """The tool's result. For a task that is `input_required` this is requested early: its stream carries the questions."""
        fetching = self._legacy_session.send_request("tasks/result", self._params)
        try:
            result = await (fetching if awaits_input else await_poll(fetching))
        except UpstreamError as failure:
            return None if awaits_input else error_to_completion(failure.error)
        check_legacy_task_result(result, self._task_id)
        return result_to_completion(dict(result))

    async def _wait_for_notification(self) -> None:
        if self._notifications is None or await self._notifications.next_notification() is None:
            self._notifications = None
            await asyncio.Event().wait()


async def _cancel_task(legacy_session: LegacySessionPort, task_id: str) -> Mapping[str, Any]:
    """The task after it; empty if the upstream refuses. The task has then ended or is gone: the next poll shows which."""
    try:
        return await legacy_session.send_request("tasks/cancel", {"taskId": task_id})
    except UpstreamError:
        return {}


@asynccontextmanager
async def _enter_task_session(
    session: CallSessionPort, session_id: LegacySessionId | None
) -> AsyncGenerator[LegacySessionPort]:
    """The session with this id; the current one for a task without a session id."""
    if session_id is None or session.legacy_session.session_id == session_id:
        yield session.legacy_session
    else:
        async with session.rejoin_session(session_id) as rejoined:
            yield rejoined


def make_legacy_task_handle(task_id: str, session_id: LegacySessionId | None) -> Handle:
    """Without a session id, the task is polled in any session."""
    session = (
        None if session_id is None else {"id": session_id.session_id, "protocol_version": session_id.protocol_version}
    )
    return Handle(driver=LEGACY_TASK_DRIVER, data={"task_id": task_id, "session": session})


def _get_handle(call: Call) -> Handle | None:
    return call.handle if call.handle is not None and call.handle.driver == LEGACY_TASK_DRIVER else None


def _get_session_id(handle: Handle) -> LegacySessionId | None:
    if (session := handle.data["session"]) is None:
        return None
    return LegacySessionId(session_id=session["id"], protocol_version=session["protocol_version"])
