"""Tasks on the wire: those of 2026-07-28 (the extension SEP-2663) and those of 2025-11-25, which a client requests.

                     2026-07-28                                 2025-11-25
    is created by    tools/call, if the client declares it      tools/call with `task`, for tools that declare it
    is named in      `{resultType: "task", taskId}`             `{task: {taskId}}`
    its result       in tasks/get                               in tasks/result, which blocks until the end

Polling is the same for both: the server's interval within bounds, and a few failures in a row before a task counts as lost.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from ringback.protocol.errors import (
    InvalidUpstreamResponse,
    RequestFailed,
    ResponseLost,
    UpstreamError,
    UpstreamUnavailable,
)

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
RELATED_TASK_META_KEY: Final = "io.modelcontextprotocol/related-task"
"""The key of `{taskId}` in messages of 2025-11-25 about a task."""
DRAFT_TASK_META_KEY: Final = "modelcontextprotocol.io/task"
"""The key of `{taskId, status}` in an earlier draft of 2025-11-25 (SEP-1686). The client and the server of FastMCP 2.14 use
it for the id of a task, in a CallToolResult, after `params.task` of 2025-11-25."""
TASK_ID_LENGTH_MAX: Final = 1024
"""A longer task id is not usable."""
POLL_SECONDS_MIN: Final = 0.1
POLL_SECONDS_MAX: Final = 60.0
"""The bounds of a server's own interval: shorter ones would flood it at ten thousand tasks, longer ones delay the result."""
SHORTEST_POLL_RATIO: Final = 0.01
"""The shortest interval divided by the time since polling began, up to `POLL_SECONDS_DEFAULT`. Fifty tasks whose server names a
tenth of a second or less took a whole core for as long as they ran."""
POLL_SECONDS_DEFAULT: Final = 2.0
POLL_INTERVAL_RATIO: Final = 0.05
"""Poll interval divided by the time since polling began, for a server that names no interval: an end is noticed late by at
most this share. Polling ten thousand tasks every two seconds would be a flood (2 ms of CPU each, measured)."""
POLL_TIMEOUT_SECONDS: Final = 60.0
"""A server answers tasks/get at once, so a poll without a response for this long was lost on a connection that still stands.
The longest interval between two polls is as long."""
CONSECUTIVE_ERRORS_MAX: Final = 10
LOST_AFTER_SECONDS: Final = 300.0
"""Failed polls in a row for so long, and more than `CONSECUTIVE_ERRORS_MAX` of them: then the task counts as lost. A server
that restarts, or whose database does, returns such errors for a while, and ten polls may take one second."""
TASK_NOT_FOUND_CODES: Final = frozenset({-32602, -32601, -32021})
"""The errors of tasks/get for an unknown or expired task (INVALID_PARAMS, a MUST) and of a server that no longer has tasks
(METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY)."""
TASK_LOST_MESSAGE: Final = "The upstream no longer reports the task that it created. The tool may have done its work."
_NOT_A_TASK: Final = "The upstream returned a response that is not a task."
_OTHER_TASK: Final = "The upstream returned another task than the one that it was asked for."
_UNUSABLE_ID: Final = "The upstream created a task without a usable taskId."


@dataclass(frozen=True, slots=True)
class WorkingTask:
    status_message: str | None


@dataclass(frozen=True, slots=True)
class TaskAwaitingInput:
    """Its requests for input by the server's keys. Legacy tasks ask on the stream of tasks/result instead."""

    requests: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)


@dataclass(frozen=True, slots=True)
class CompletedTask:
    result: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class FailedTask:
    error: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class CancelledTask:
    pass


@dataclass(frozen=True, slots=True)
class EndedLegacyTask:
    """Completed or failed. Only tasks/result separates a failed task from an `isError` result."""


def parse_task(
    task: Mapping[str, Any], task_id: str
) -> WorkingTask | TaskAwaitingInput | CompletedTask | FailedTask | CancelledTask:
    """Parse the DetailedTask of this id (2026-07-28), from tasks/get or a notification; raises `InvalidUpstreamResponse`."""
    _require_same_task(task, task_id)
    match task.get("status"):
        case "working":
            return WorkingTask(_get_status_message(task))
        case "input_required":
            return TaskAwaitingInput(_require_object(task, "inputRequests"))
        case "completed":
            return CompletedTask(_require_object(task, "result"))
        case "failed":
            return FailedTask(_require_object(task, "error"))
        case "cancelled":
            return CancelledTask()
        case _:
            raise InvalidUpstreamResponse(_NOT_A_TASK)


def parse_legacy_task(
    task: Mapping[str, Any], task_id: str
) -> WorkingTask | TaskAwaitingInput | EndedLegacyTask | CancelledTask:
    """Parse the Task of this id (2025-11-25), from tasks/get or tasks/cancel; raises `InvalidUpstreamResponse`."""
    _require_same_task(task, task_id)
    match task.get("status"):
        case "working":
            return WorkingTask(_get_status_message(task))
        case "input_required":
            return TaskAwaitingInput()
        case "completed" | "failed":
            return EndedLegacyTask()
        case "cancelled":
            return CancelledTask()
        case _:
            raise InvalidUpstreamResponse(_NOT_A_TASK)


def check_legacy_task_result(result: Mapping[str, Any], task_id: str) -> None:
    """Raise `InvalidUpstreamResponse` if the response to tasks/result says that it is another task's."""
    _require_same_task(_get_object(_get_object(result, "_meta"), RELATED_TASK_META_KEY), task_id)


def find_created_task_id(result: Mapping[str, Any]) -> str | None:
    """The id of the task that a modern tools/call created; None if it created none. Raises `InvalidUpstreamResponse`."""
    return _check_task_id(result.get("taskId")) if result.get("resultType") == "task" else None


def find_created_legacy_task_id(result: Mapping[str, Any]) -> str | None:
    """The id of the task that a tools/call with `task` created; None if it created none. Raises `InvalidUpstreamResponse`."""
    for container, key in ((result, "task"), (_get_object(result, "_meta"), DRAFT_TASK_META_KEY)):
        if key in container:
            return _check_task_id(_get_object(container, key).get("taskId"))
    return None


def declares_legacy_tasks(capabilities: Mapping[str, Any]) -> bool:
    """Whether a legacy server runs tool calls as tasks at all."""
    match capabilities:
        case {"tasks": {"requests": {"tools": {"call": _}}}}:
            return True
        case _:
            return False


def supports_legacy_task(tool: Mapping[str, Any]) -> bool:
    """Whether calls of this listed tool may run as tasks."""
    match tool:
        case {"execution": {"taskSupport": "required" | "optional"}}:
            return True
        case _:
            return False


async def await_poll(poll: Awaitable[dict[str, Any]]) -> Mapping[str, Any]:
    """The response to a poll. Raises `ResponseLost` after `POLL_TIMEOUT_SECONDS`: a poll may be sent again."""
    try:
        async with asyncio.timeout(POLL_TIMEOUT_SECONDS):
            return await poll
    except TimeoutError:
        raise ResponseLost(f"The upstream did not answer a poll within {POLL_TIMEOUT_SECONDS:.0f} s.") from None


class TaskPolling:
    """The state of polling one task: the pause before the next poll, and whether the task counts as lost."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._started_at = monotonic()
        self._consecutive_errors = 0
        self._failing_since = 0.0
        """When the first of the failed polls in a row failed."""
        self.poll_seconds = POLL_SECONDS_DEFAULT
        """The pause before the next poll, unless a notification arrives first."""

    def set_poll_interval(self, milliseconds: Any) -> None:
        """Use the server's interval within bounds; `milliseconds` is its unchecked value."""
        self.poll_seconds = compute_poll_seconds(milliseconds, elapsed_seconds=self._monotonic() - self._started_at)

    def reset_errors(self) -> None:
        """The server returned the task, so earlier errors no longer count."""
        self._consecutive_errors = 0

    def counts_as_lost(self, failure: RequestFailed) -> bool:
        """Count a failed poll. False while another poll may succeed, as always while the server cannot be reached."""
        if isinstance(failure, UpstreamUnavailable) or not isinstance(failure, UpstreamError | InvalidUpstreamResponse):
            return False
        now = self._monotonic()
        if self._consecutive_errors == 0:
            self._failing_since = now
        self._consecutive_errors += 1
        if isinstance(failure, UpstreamError) and failure.error.get("code") in TASK_NOT_FOUND_CODES:
            return True
        return self._consecutive_errors > CONSECUTIVE_ERRORS_MAX and now >= self._failing_since + LOST_AFTER_SECONDS


def compute_poll_seconds(milliseconds: Any, *, elapsed_seconds: float) -> float:
    """The pause before the next poll: the server's interval within bounds, else a share of the elapsed time."""
    if not _is_number(milliseconds):
        return min(max(POLL_INTERVAL_RATIO * elapsed_seconds, POLL_SECONDS_DEFAULT), POLL_SECONDS_MAX)
    shortest = max(POLL_SECONDS_MIN, min(SHORTEST_POLL_RATIO * elapsed_seconds, POLL_SECONDS_DEFAULT))
    # The bounds come before the division, which fails for an integer of 400 digits.
    return min(max(milliseconds, shortest * 1000), POLL_SECONDS_MAX * 1000) / 1000


def _is_number(value: Any) -> bool:
    """Whether the value is a number as JSON has them. Python's parser also returns NaN and Infinity."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _get_status_message(task: Mapping[str, Any]) -> str | None:
    message = task.get("statusMessage")
    return message if isinstance(message, str) else None


def _get_object(container: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = container.get(key)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _require_same_task(named: Mapping[str, Any], task_id: str) -> None:
    """A server that mixes tasks up must not end this one with another's result. One that names no task means this one."""
    if (named_id := named.get("taskId")) is not None and named_id != task_id:
        raise InvalidUpstreamResponse(_OTHER_TASK)


def _check_task_id(task_id: Any) -> str:
    if not isinstance(task_id, str) or not 0 < len(task_id) <= TASK_ID_LENGTH_MAX:
        raise InvalidUpstreamResponse(_UNUSABLE_ID)
    return task_id


def _require_object(task: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = task.get(key)
    if not isinstance(value, dict):
        raise InvalidUpstreamResponse(f"The upstream returned a task without its {key}.")
    return cast("dict[str, Any]", value)
