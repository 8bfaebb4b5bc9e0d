"""The driver for upstreams with the tasks extension (SEP-2663, 2026-07-28): it polls the upstream's task until it ends.

    tools/call ──▶ CreateTaskResult ──▶ handle saved ──▶ tasks/get, tasks/get, … ──▶ completed | failed | cancelled
                                            notifications/tasks, where offered, replace most of the polls
                                            tasks/update sends answers; tasks/cancel requests the cancellation

The upstream alone decides whether a call becomes a task. A task has no read timeout: the call's deadline is the limit. An
upstream that cannot be reached is polled again until it can. If it no longer knows the task, the call ends as `unknown`.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from ringback.asyncio_tasks import end_tasks
from ringback.domain.call import Call, Handle
from ringback.domain.call_outcome import CANCELLED_COMPLETION, CallCompletion, CallOutcome, failed_completion
from ringback.domain.clock import Clock
from ringback.protocol.errors import InvalidUpstreamResponse, LoginRequired, RequestFailed, UpstreamError
from ringback.protocol.tasks import (
    POLL_SECONDS_MIN,
    TASKS_EXTENSION,
    CancelledTask,
    CompletedTask,
    FailedTask,
    TaskAwaitingInput,
    WorkingTask,
    await_poll,
    find_created_task_id,
    parse_task,
)
from ringback.runner.drivers.completions import error_to_completion, failure_to_completion, result_to_completion
from ringback.runner.drivers.created_task import CreatedTask
from ringback.runner.drivers.driver import CallContext, ParkedCall
from ringback.runner.drivers.mrtr import call_tool_in_rounds, get_client_capabilities, input_not_accepted_completion
from ringback.runner.drivers.task_polling import TaskPoller
from ringback.upstreams.session_ports import CallSessionPort, NotificationStreamPort

TASK_DRIVER: Final = "task"
"""The driver name in its handles."""
SUBSCRIBED_POLL_SECONDS: Final = 30.0
"""The least poll interval beside a notification stream. Polling goes on because a stream may lose notifications (no replay)."""


class TaskDriver:
    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._created = CreatedTask(clock)

    async def run_call(self, session: CallSessionPort, context: CallContext) -> CallCompletion | ParkedCall:
        handle = _get_handle(context.call)
        if handle is None:
            with self._created.expect_response():
                started = await _start_call(session, context)
                if not isinstance(started, Handle):
                    return started
                self._created.handle = handle = started
            await context.save_handle(handle)
            # These answered the rounds before the task; the task has keys of its own.
            await context.mark_answers_sent(context.call.input_responses)
        task_id: str = handle.data["task_id"]
        return await _TaskExecution(session, context, task_id, clock=self._clock).run_until_completion()

    async def cancel_call(self, session: CallSessionPort, call: Call) -> CallCompletion | None:
        """Without a task, abandoning the request cancels it. A task reports itself how it ended."""
        handle = _get_handle(call) or await self._created.wait_for_handle()
        if handle is None:
            return CANCELLED_COMPLETION
        try:
            await session.send_request(
                "tasks/cancel", {"taskId": handle.data["task_id"]}, client_capabilities=task_client_capabilities(call)
            )
        except UpstreamError:
            return None  # the task is gone, or tasks/cancel is not supported: the next poll shows which
        return None


def task_client_capabilities(call: Call) -> Mapping[str, Any]:
    return {**get_client_capabilities(call), "extensions": {TASKS_EXTENSION: {}}}


def _get_handle(call: Call) -> Handle | None:
    return call.handle if call.handle is not None and call.handle.driver == TASK_DRIVER else None


async def _start_call(session: CallSessionPort, context: CallContext) -> Handle | CallCompletion | ParkedCall:
    """The handle of the call's task, or what the call came to without one."""
    result = await call_tool_in_rounds(session, context, client_capabilities=task_client_capabilities(context.call))
    if not isinstance(result, dict):
        return result
    try:
        task_id = find_created_task_id(result)
    except InvalidUpstreamResponse as failure:
        return failure_to_completion(failure)
    return result_to_completion(result) if task_id is None else Handle(driver=TASK_DRIVER, data={"task_id": task_id})


class _TaskExecution:
    """Polls one task until it ends."""

    def __init__(self, session: CallSessionPort, context: CallContext, task_id: str, *, clock: Clock) -> None:
        self._session = session
        self._context = context
        self._task_id = task_id
        self._clock = clock
        self._poller = TaskPoller(context, clock=clock)
        self._notifications: NotificationStreamPort | None = None
        self._answered_names: set[str] = set()
        """The upstream may still list a question for a moment after its answer has arrived."""

    async def run_until_completion(self) -> CallCompletion:
        wanted = {"taskIds": [self._task_id]}
        async with self._session.open_notification_stream(
            wanted, client_capabilities=task_client_capabilities(self._context.call)
        ) as notifications:
            self._notifications = notifications
            notification: Mapping[str, Any] | None = None
            while True:
                try:
                    if (completion := await self._process_update(notification)) is not None:
                        return completion
                except LoginRequired:
                    raise
                except RequestFailed as failure:
                    if (completion := self._poller.complete_if_lost(failure)) is not None:
                        return completion
                    await self._clock.sleep(self._poller.poll_seconds)
                    notification = None
                else:
                    notification = await self._wait_for_update()

    async def _process_update(self, notification: Mapping[str, Any] | None) -> CallCompletion | None:
        completion = await self._apply_task(notification or await self._send_task_request("tasks/get", {}))
        self._poller.reset_errors()
        if completion is None and (answers := await self._context.wait_for_answers(0)):
            await self._send_answers(answers)
        return completion

    async def _send_task_request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The response, which comes at once. One that stays out is lost: the next poll goes on, and sends the rest again."""
        return await await_poll(
            self._session.send_request(
                method,
                {"taskId": self._task_id, **params},
                client_capabilities=task_client_capabilities(self._context.call),
            )
        )

    async def _apply_task(self, task: Mapping[str, Any]) -> CallCompletion | None:
        """Apply a DetailedTask: its completion, its questions or its status message."""
        self._poller.set_poll_interval(task.get("pollIntervalMs"))
        match parse_task(task, self._task_id):
            case CompletedTask(result):
                return result_to_completion(result)
            case FailedTask(error):
                return error_to_completion(error)
            case CancelledTask():
                return CANCELLED_COMPLETION
            case TaskAwaitingInput(requests):
                return await self._request_input(requests)
            case WorkingTask(message):
                await self._context.request_input({})
                await self._poller.report_status_message(message)
                return None

    async def _request_input(self, requests: dict[str, Any]) -> CallCompletion | None:
        if not self._context.call.accepts_input:
            await self._cancel_task()
            return input_not_accepted_completion()
        try:
            await self._context.request_input(
                {name: request for name, request in requests.items() if name not in self._answered_names}
            )
        except ValueError as problem:
            await self._cancel_task()
            return failed_completion(CallOutcome.UPSTREAM_ERROR, str(problem))
        return None

    async def _cancel_task(self) -> None:
        """The call ends here, and the task would wait for an answer until its upstream forgets it."""
        with suppress(UpstreamError):
            await self._send_task_request("tasks/cancel", {})

    async def _send_answers(self, answers: Mapping[str, Any]) -> None:
        try:
            await self._send_task_request("tasks/update", {"inputResponses": answers})
            self._answered_names.update(answers)
        except UpstreamError:
            pass  # rejected: a question that is still listed is asked again, under a new key
        await self._context.mark_answers_sent(answers)
        self._poller.poll_seconds = POLL_SECONDS_MIN  # the task goes on now; its next state names the next interval

    async def _next_notification(self, notifications: NotificationStreamPort) -> Mapping[str, Any] | None:
        """The next notification about this task. An upstream may send those of other tasks too, with their results."""
        while (notification := await notifications.next_notification()) is not None:
            if notification.get("taskId") == self._task_id:
                break
        return notification

    async def _wait_for_update(self) -> Mapping[str, Any] | None:
        """Wait for the next poll. Returns the notification that ended the wait, if one did."""
        if self._notifications is None:
            await self._context.wait_for_answers(self._poller.poll_seconds)
            return None
        receiving = asyncio.ensure_future(self._next_notification(self._notifications))
        answering = asyncio.ensure_future(
            self._context.wait_for_answers(max(self._poller.poll_seconds, SUBSCRIBED_POLL_SECONDS))
        )
        try:
            await asyncio.wait({receiving, answering}, return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done():
                answering.result()  # raises the error of the wait, for example LeaseLost
                return None
            if (notification := receiving.result()) is None:
                self._notifications = None
            return notification
        finally:
            await end_tasks([receiving, answering])
