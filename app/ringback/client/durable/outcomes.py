"""What a caller gets of a call: its result or an error, or a snapshot of its state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ringback.client.durable.call_runner import CallRunner
from ringback.client.durable.errors import CallCancelled, CallFailed, InputRequired
from ringback.client.durable.handle import CallHandle
from ringback.client.durable.record import CallRecord
from ringback.client.models import InputRequest, Progress
from ringback.client.problems import ClientError


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSnapshot:
    """A call as the state knows it. Nothing was sent to find this out."""

    handle: CallHandle
    status: str
    """starting | working | input_required | completed | failed | cancelled"""
    outcome: str | None
    progress: Progress | None
    input_requests: Mapping[str, InputRequest] = field(repr=False)

    @property
    def client_session_id(self) -> str | None:
        return self.handle.client_session_id

    @property
    def correlation_id(self) -> str | None:
        return self.handle.correlation_id


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedCall:
    """What a join of several calls found out about one of them."""

    handle: CallHandle
    result: Mapping[str, Any] | None = field(default=None, repr=False)
    """The CallToolResult; None if the call has not ended, or has failed."""
    error: ClientError | None = None
    """Why it has no result: `InputRequired`, `CallFailed`, …"""

    @property
    def is_settled(self) -> bool:
        """Whether a join of this call returns or raises at once: it has ended, or it asks for input."""
        return self.result is not None or self.error is not None


def get_result(runner: CallRunner) -> Mapping[str, Any]:
    """The result of a call whose join is over; raises what it ended with instead."""
    record = runner.call.record
    if record.completion is None and runner.failure is not None:
        raise runner.failure
    if record.completion is None:
        raise InputRequired(record.handle, record.input_requests)
    if record.completion.result is not None:
        return record.completion.result
    error = CallCancelled if record.completion.outcome == "cancelled" else CallFailed
    raise error(record.handle, record.completion.outcome, record.completion.error)


def make_snapshot(record: CallRecord) -> CallSnapshot:
    return CallSnapshot(
        handle=record.handle,
        status=_get_status(record),
        outcome=None if record.completion is None else record.completion.outcome,
        progress=record.progress,
        input_requests=record.input_requests,
    )


def _get_status(record: CallRecord) -> str:
    match record.completion:
        case None if record.input_requests:
            return "input_required"
        case None:
            return "starting" if record.position is None else "working"
        case completion if completion.result is not None:
            return "completed"
        case completion:
            return "cancelled" if completion.outcome == "cancelled" else "failed"
