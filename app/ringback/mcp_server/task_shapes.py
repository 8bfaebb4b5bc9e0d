"""A call as a task, in the words of both generations of the wire.

    2026-07-28, the tasks extension     flat; ttlMs, pollIntervalMs; tasks/get holds the result, the error or the questions
    2025-11-25, experimental            flat in tasks/get, nested in the answer to tools/call; ttl, pollInterval; tasks/result

They also differ in what `failed` means: today only a JSON-RPC error, in 2025-11-25 also a result that is an error.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.call import Call, Outcome, Progress, Status
from ringback.domain.clock import iso, seconds

RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
POLL_MILLISECONDS_MIN: Final = 500
"""A person who waits does not notice it, and a look costs one read."""
POLL_MILLISECONDS_MAX: Final = 10_000
"""What has run for minutes is not over in the next second; ten thousand polling clients then cost a thousand reads a second."""
POLL_SHARE_OF_AGE: Final = 10
"""Clients are asked to look again after a tenth of the time the call has taken so far: the end is seen a tenth late at most."""

_MESSAGES: Final = {
    Status.INPUT_REQUIRED: "The tool asks for input.",
    Status.CANCELLED: "The call was cancelled.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskShapes:
    """The shapes that need nothing but the call and how long results are kept."""

    result_retention_seconds: float

    def created(self, call: Call, *, now: datetime) -> dict[str, Any]:
        """CreateTaskResult of 2026-07-28: the seed, without result, error or questions."""
        return {"resultType": "task", **self._task(call, now=now)}

    def detailed(self, call: Call, result: bytes | None, *, now: datetime) -> dict[str, Any]:
        """DetailedTask of 2026-07-28: the task, and by its status exactly one of inputRequests, result and error, or none."""
        return {**self._task(call, now=now), **_payload(call, result)}

    def legacy_created(self, call: Call, *, now: datetime) -> dict[str, Any]:
        """CreateTaskResult of 2025-11-25."""
        return {"task": self.legacy_task(call, now=now)}

    def legacy_task(self, call: Call, *, now: datetime) -> dict[str, Any]:
        """Task of 2025-11-25."""
        poll = {} if call.final else {"pollInterval": _poll_milliseconds(call, now)}
        status = str(legacy_status(call))
        return {"taskId": call.id, "status": status, **_told(call), "ttl": self._ttl_milliseconds(call), **poll}

    def _task(self, call: Call, *, now: datetime) -> dict[str, Any]:
        poll = {} if call.final else {"pollIntervalMs": _poll_milliseconds(call, now)}
        return {
            "taskId": call.id,
            "status": str(call.status),
            **_told(call),
            "ttlMs": self._ttl_milliseconds(call),
            **poll,
        }

    def _ttl_milliseconds(self, call: Call) -> int:
        """From its creation; of a call that has not ended, the longest that can become of it."""
        gone_at = call.expires_at or call.deadline_at + seconds(self.result_retention_seconds)
        return _milliseconds(gone_at - call.created_at)


def legacy_status(call: Call) -> Status:
    return Status.FAILED if call.outcome is Outcome.TOOL_ERROR else call.status


def related_task(call: Call) -> dict[str, Any]:
    """What goes into the `_meta` of everything about a task of 2025-11-25 that does not name it."""
    return {RELATED_TASK: {"taskId": call.id}}


def asked(call: Call) -> dict[str, Any]:
    """What the call asks now, by the keys that answers go by."""
    return {key: {"method": each.method, "params": each.params} for key, each in call.input_requests.items()}


def observable(call: Call) -> tuple[Any, ...]:
    """What of a call a task shows: a call of which this is the same as before has no news for a client."""
    return call.status, call.progress, tuple(call.input_requests)


def _told(call: Call) -> dict[str, Any]:
    message = status_message(call)
    told = {"createdAt": iso(call.created_at), "lastUpdatedAt": iso(call.updated_at)}
    return told if message is None else {"statusMessage": message, **told}


def _payload(call: Call, result: bytes | None) -> dict[str, Any]:
    match call.status:
        case Status.INPUT_REQUIRED:
            return {"inputRequests": asked(call)}
        case Status.COMPLETED if result is not None:
            return {"result": jsontext.loads(result)}
        case Status.FAILED:
            return {"error": call.error}
        case _:
            return {}


def status_message(call: Call) -> str | None:
    """One line for a person or a model."""
    if call.status in _MESSAGES:
        return _MESSAGES[call.status]
    if call.error is not None:
        return str(call.error.get("message", "The tool call failed."))
    if call.outcome is Outcome.TOOL_ERROR:
        return "The tool answered with an error."
    if call.status is Status.WORKING:
        return _working_message(call)
    return None


def _working_message(call: Call) -> str:
    if call.progress is not None:
        return progress_text(call.progress)
    return "Waiting for the upstream." if call.dispatched_at is None else "The tool is running."


def progress_params(progress: Progress) -> dict[str, Any]:
    """The fields of notifications/progress."""
    told = {"progress": progress.progress, "total": progress.total, "message": progress.message}
    return {key: value for key, value in told.items() if value is not None}


def progress_text(progress: Progress) -> str:
    """The upstream's own words, else its numbers: `3 of 10`."""
    if progress.message:
        return progress.message
    return f"{progress.progress:g}" if progress.total is None else f"{progress.progress:g} of {progress.total:g}"


def _poll_milliseconds(call: Call, now: datetime) -> int:
    share = _milliseconds(now - call.created_at) // POLL_SHARE_OF_AGE
    return min(max(share, POLL_MILLISECONDS_MIN), POLL_MILLISECONDS_MAX)


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
