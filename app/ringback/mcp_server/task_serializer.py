"""A call as a task in the wire forms of both eras.

    modern (tasks extension)     flat; ttlMs, pollIntervalMs; tasks/get contains the result, the error or the questions
    legacy (2025-11-25)          flat in tasks/get, nested in the response to tools/call; ttl, pollInterval; tasks/result

`failed` differs too: in the modern form it means a JSON-RPC error, in the legacy form also a result with isError.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.call import Call, CallStatus, Progress
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.call_waits import describe_wait
from ringback.domain.clock import format_iso, seconds
from ringback.domain.login_waits import find_login_url
from ringback.domain.wait_words import describe_pause
from ringback.mcp_server.call_text import progress_text, serialize_input_requests
from ringback.protocol.tasks import RELATED_TASK_META_KEY
from ringback.protocol.upstream_logins import login_command

POLL_INTERVAL_MILLISECONDS_MIN: Final = 500
"""The shortest poll interval: a waiting user does not notice it, and a poll costs one read."""
POLL_INTERVAL_MILLISECONDS_MAX: Final = 10_000
"""The longest poll interval: ten thousand polling clients then cost a thousand reads a second."""
POLL_INTERVAL_AGE_DIVISOR: Final = 10
"""The poll interval is a tenth of the call's age, so a client sees the end at most a tenth late."""

_STATUS_MESSAGES: Final = {
    CallStatus.INPUT_REQUIRED: "The tool requests input.",
    CallStatus.CANCELLED: "The call was cancelled.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSerializer:
    """Serializes calls as tasks; the ttl depends on how long results are kept."""

    result_retention_seconds: float

    def create_task_result(self, call: Call, *, now: datetime, is_paused: bool = False) -> dict[str, Any]:
        """The modern CreateTaskResult, without result, error or questions."""
        return {"resultType": "task", **self._task_fields(call, now=now, is_paused=is_paused)}

    def detailed_task(
        self, call: Call, result: bytes | None, *, now: datetime, is_paused: bool = False
    ) -> dict[str, Any]:
        """The modern DetailedTask: by its status it has inputRequests, result, error, or none of them."""
        return {**self._task_fields(call, now=now, is_paused=is_paused), **_status_payload(call, result)}

    def legacy_create_task_result(self, call: Call, *, now: datetime, is_paused: bool = False) -> dict[str, Any]:
        return {"task": self.legacy_task(call, now=now, is_paused=is_paused)}

    def legacy_task(self, call: Call, *, now: datetime, is_paused: bool = False) -> dict[str, Any]:
        poll = {} if call.is_final else {"pollInterval": _poll_interval_milliseconds(call, now)}
        status = str(legacy_status(call))
        return {
            "taskId": call.id,
            "status": status,
            **_status_fields(call, is_paused=is_paused),
            "ttl": self._ttl_milliseconds(call),
            **poll,
        }

    def _task_fields(self, call: Call, *, now: datetime, is_paused: bool) -> dict[str, Any]:
        poll = {} if call.is_final else {"pollIntervalMs": _poll_interval_milliseconds(call, now)}
        return {
            "taskId": call.id,
            "status": str(call.status),
            **_status_fields(call, is_paused=is_paused),
            "ttlMs": self._ttl_milliseconds(call),
            **poll,
        }

    def _ttl_milliseconds(self, call: Call) -> int:
        """The time from creation to expiry; for a running call, the longest possible."""
        expires_at = call.expires_at or call.deadline_at + seconds(self.result_retention_seconds)
        return _milliseconds(expires_at - call.created_at)


def legacy_status(call: Call) -> CallStatus:
    return CallStatus.FAILED if call.outcome is CallOutcome.TOOL_ERROR else call.status


def related_task_meta(call: Call) -> dict[str, Any]:
    """The `_meta` of legacy messages that belong to a task and do not name it."""
    return {RELATED_TASK_META_KEY: {"taskId": call.id}}


def get_observable_state(call: Call) -> tuple[Any, ...]:
    """The fields that a task shows: while they stay equal, a client needs no notification."""
    return call.status, call.progress, tuple(call.input_requests)


def _status_fields(call: Call, *, is_paused: bool) -> dict[str, Any]:
    message = status_message(call, is_paused=is_paused)
    fields = {"createdAt": format_iso(call.created_at), "lastUpdatedAt": format_iso(call.updated_at)}
    return fields if message is None else {"statusMessage": message, **fields}


def _status_payload(call: Call, result: bytes | None) -> dict[str, Any]:
    match call.status:
        case CallStatus.INPUT_REQUIRED:
            return {"inputRequests": serialize_input_requests(call)}
        case CallStatus.COMPLETED if result is not None:
            return {"result": jsontext.loads(result)}
        case CallStatus.FAILED:
            return {"error": call.error}
        case _:
            return {}


def status_message(call: Call, *, is_paused: bool = False) -> str | None:
    """One line for a user or a model. `is_paused`: the call waits because an operator has paused its upstream."""
    if (login_url := find_login_url(call)) is not None:
        return f"Sign in to '{call.upstream}': {login_url} or, in a terminal: {login_command(call.upstream)}"
    if call.status in _STATUS_MESSAGES:
        return _STATUS_MESSAGES[call.status]
    if call.error is not None:
        return str(call.error.get("message", "The tool call failed."))
    if call.outcome is CallOutcome.TOOL_ERROR:
        return "The tool answered with an error."
    if call.status is CallStatus.WORKING:
        return describe_pause(call.upstream) if is_paused else _working_message(call)
    return None


def _working_message(call: Call) -> str:
    if call.progress is not None:
        return progress_text(call.progress)
    return describe_wait(call) or "The tool is running."


def progress_params(progress: Progress) -> dict[str, Any]:
    """The fields of notifications/progress."""
    params = {"progress": progress.progress, "total": progress.total, "message": progress.message}
    return {key: value for key, value in params.items() if value is not None}


def _poll_interval_milliseconds(call: Call, now: datetime) -> int:
    share = _milliseconds(now - call.created_at) // POLL_INTERVAL_AGE_DIVISOR
    return min(max(share, POLL_INTERVAL_MILLISECONDS_MIN), POLL_INTERVAL_MILLISECONDS_MAX)


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
