"""Tasks of 2025-11-25. Servers without authorization let only the session of a task read it, so the position names it."""

from collections.abc import Mapping
from typing import Any, Final

from mcp.shared.dispatcher import CallOptions

from ringback.client.durable.direct.completions import (
    CANCELLED,
    completion_from_failure,
    completion_from_result,
    failed_completion,
    make_progress_callback,
)
from ringback.client.durable.direct.connection import DirectConnection
from ringback.client.durable.direct.tasks import report_status_message
from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.record import LegacyTaskPosition
from ringback.protocol.errors import (
    CredentialsRejected,
    CredentialsRequired,
    RequestFailed,
    RequestNotSent,
    SessionNotFound,
    UpstreamError,
)
from ringback.protocol.sessions import LegacySessionId
from ringback.protocol.tasks import (
    TASK_LOST_MESSAGE,
    CancelledTask,
    EndedLegacyTask,
    TaskAwaitingInput,
    TaskPolling,
    WorkingTask,
    await_poll,
    check_legacy_task_result,
    find_created_legacy_task_id,
    parse_legacy_task,
)

_QUERY: Final[CallOptions] = {"cancel_on_abandon": False}
"""These requests only ask for a status; abandoning one cancels nothing."""


async def start_legacy_task(connection: DirectConnection, call: LocalCall) -> None:
    """Raises `RequestNotSent`. The server is asked to keep the task as long as the state keeps the call."""
    ttl_seconds = max(0.0, call.record.expires_at - call.clock.now())
    params = {**call.record.request.make_tool_call_params(), "task": {"ttl": round(ttl_seconds * 1000)}}
    connection.keep_session(keep=True)
    try:
        result = await connection.send_request("tools/call", params, on_progress=make_progress_callback(call))
        task_id = find_created_legacy_task_id(result)
    except RequestNotSent:
        raise
    except RequestFailed as failure:
        await call.complete(completion_from_failure(failure))
        return
    if task_id is None:
        connection.keep_session(keep=False)
        await call.complete(completion_from_result(result))
        return
    session = connection.session_id
    await call.save_position(
        LegacyTaskPosition(
            task_id=task_id,
            session_id=None if session is None else session.session_id,
            protocol_version=connection.protocol.protocol_version,
        )
    )


def get_session_id(position: LegacyTaskPosition) -> LegacySessionId | None:
    if position.session_id is None:
        return None
    return LegacySessionId(session_id=position.session_id, protocol_version=position.protocol_version)


async def follow_legacy_task(connection: DirectConnection, call: LocalCall, position: LegacyTaskPosition) -> None:
    """Poll the task until it ends. Raises `SessionNotFound`, and other `RequestFailed` only if credentials are rejected."""
    polling = TaskPolling(call.clock.monotonic)
    while True:
        try:
            task = await await_poll(_send_task_request(connection, position, "tasks/get"))
            await _apply_task(connection, call, position, task)
            polling.reset_errors()
            polling.set_poll_interval(task.get("pollInterval"))
        except (CredentialsRejected, CredentialsRequired, SessionNotFound):
            raise
        except RequestFailed as failure:
            if polling.counts_as_lost(failure):
                await call.complete(failed_completion("unknown", TASK_LOST_MESSAGE))
        if call.record.completion is not None:
            return
        await call.clock.sleep(polling.poll_seconds)


async def cancel_legacy_task(connection: DirectConnection, call: LocalCall, position: LegacyTaskPosition) -> None:
    try:
        task = await _send_task_request(connection, position, "tasks/cancel")
    except UpstreamError:  # the task has ended or is gone: the next request shows which
        task = await _send_task_request(connection, position, "tasks/get")
    await _apply_task(connection, call, position, task)


async def _apply_task(
    connection: DirectConnection, call: LocalCall, position: LegacyTaskPosition, task: Mapping[str, Any]
) -> None:
    match parse_legacy_task(task, position.task_id):
        case WorkingTask(message):
            report_status_message(call, message)
        case CancelledTask():
            await call.complete(CANCELLED)
        case TaskAwaitingInput() if connection.answers_input:
            await _fetch_result(connection, call, position)  # the server asks on this request, and then ends it
        case TaskAwaitingInput():
            pass  # it asks clients that declare elicitation, and this one does not
        case EndedLegacyTask():
            await _fetch_result(connection, call, position)


async def _fetch_result(connection: DirectConnection, call: LocalCall, position: LegacyTaskPosition) -> None:
    """Only tasks/result separates a failed task from an `isError` result."""
    try:
        result = await _send_task_request(connection, position, "tasks/result")
    except UpstreamError as failure:
        await call.complete(completion_from_failure(failure))
    else:
        check_legacy_task_result(result, position.task_id)
        await call.complete(completion_from_result(result))


async def _send_task_request(connection: DirectConnection, position: LegacyTaskPosition, method: str) -> dict[str, Any]:
    return await connection.send_request(method, {"taskId": position.task_id}, options=_QUERY)
