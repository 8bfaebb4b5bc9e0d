"""Tasks of 2026-07-28: any process polls a task by its id."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ringback.client.durable.direct.completions import (
    CANCELLED,
    MESSAGE_LENGTH_MAX,
    completion_from_failure,
    completion_from_result,
    failed_completion,
)
from ringback.client.durable.direct.connection import DirectConnection
from ringback.client.durable.direct.rounds import client_capabilities, parse_input_requests
from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.record import TaskPosition
from ringback.client.models import Progress
from ringback.protocol.errors import CredentialsRejected, CredentialsRequired, RequestFailed, UpstreamError
from ringback.protocol.tasks import (
    TASK_LOST_MESSAGE,
    CancelledTask,
    CompletedTask,
    FailedTask,
    TaskAwaitingInput,
    TaskPolling,
    WorkingTask,
    await_poll,
    parse_task,
)


async def follow_task(connection: DirectConnection, call: LocalCall, position: TaskPosition) -> None:
    """Poll the task until it ends or asks for input. Raises `RequestFailed` only if the server rejects our credentials."""
    polling = TaskPolling(call.clock.monotonic)
    while True:
        try:
            task = await await_poll(_send_task_request(connection, call, position, "tasks/get", {}))
            await apply_task(call, task, position)
            polling.reset_errors()
            polling.set_poll_interval(task.get("pollIntervalMs"))
        except (CredentialsRejected, CredentialsRequired):
            raise
        except RequestFailed as failure:
            if polling.counts_as_lost(failure):
                await call.complete(failed_completion("unknown", TASK_LOST_MESSAGE))
        if call.record.completion is not None or call.record.input_requests:
            return
        await call.clock.sleep(polling.poll_seconds)


async def read_task(connection: DirectConnection, call: LocalCall, position: TaskPosition) -> None:
    """Save how the task stands, or that the server does not know it any more. Raises `RequestFailed`."""
    try:
        task = await await_poll(_send_task_request(connection, call, position, "tasks/get", {}))
        await apply_task(call, task, position)
    except RequestFailed as failure:
        if not TaskPolling(call.clock.monotonic).counts_as_lost(failure):
            raise
        await call.complete(failed_completion("unknown", TASK_LOST_MESSAGE))


async def cancel_task(connection: DirectConnection, call: LocalCall, position: TaskPosition) -> None:
    """Ask for the cancellation, and save the task's end if it has one by then."""
    with suppress(UpstreamError):  # the task has ended or is gone: the next request shows which
        await _send_task_request(connection, call, position, "tasks/cancel", {})
    await apply_task(call, await _send_task_request(connection, call, position, "tasks/get", {}), position)


async def answer_task(
    connection: DirectConnection, call: LocalCall, position: TaskPosition, responses: Mapping[str, Mapping[str, Any]]
) -> None:
    await _send_task_request(connection, call, position, "tasks/update", {"inputResponses": dict(responses)})
    await call.save_changes(
        lambda record: {
            "input_requests": {key: asked for key, asked in record.input_requests.items() if key not in responses},
            "answered_keys": (*record.answered_keys, *responses),
        }
    )


async def apply_task(call: LocalCall, task: Mapping[str, Any], position: TaskPosition) -> None:
    """Save what the DetailedTask says. Raises `InvalidUpstreamResponse`, also for another task than that of the position."""
    match parse_task(task, position.task_id):
        case CompletedTask(result):
            await call.complete(completion_from_result(result))
        case FailedTask(error):
            await call.complete(completion_from_failure(UpstreamError(error)))
        case CancelledTask():
            await call.complete(CANCELLED)
        case TaskAwaitingInput(requests):
            asked = parse_input_requests(requests)
            await call.save_changes(
                lambda record: {
                    "input_requests": {key: each for key, each in asked.items() if key not in record.answered_keys}
                }
            )
        case WorkingTask(message):
            report_status_message(call, message)
            if call.record.input_requests:
                await call.save(input_requests={})


def report_status_message(call: LocalCall, message: str | None) -> None:
    """Report each new statusMessage as one step of progress: a task reports no other progress."""
    last = call.record.progress
    if message is not None and (last is None or last.message != message[:MESSAGE_LENGTH_MAX]):
        step = 1.0 if last is None else last.progress + 1
        call.report_progress(Progress(progress=step, message=message[:MESSAGE_LENGTH_MAX]))


async def _send_task_request(
    connection: DirectConnection, call: LocalCall, position: TaskPosition, method: str, params: Mapping[str, Any]
) -> dict[str, Any]:
    return await connection.send_request(
        method, {"taskId": position.task_id, **params}, client_capabilities=client_capabilities(call)
    )
