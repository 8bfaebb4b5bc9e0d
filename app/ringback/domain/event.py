"""Events: what happened, in one order per principal.

`seq` is the place in the principal's log. It is taken under the lock of the log's head and kept until commit, so it is the
order of commits: a reader that has seen `seq` n will never find something new at or before n.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from ringback.domain.call import Call, Progress
from ringback.domain.clock import format_iso
from ringback.domain.cursor import LogPosition, event_mark
from ringback.domain.ids import CallId, EventId
from ringback.domain.principal import Principal


class EventName(StrEnum):
    CALL_FINISHED = "call.finished"
    CALL_INPUT_REQUIRED = "call.input_required"
    CALL_PROGRESS = "call.progress"
    WEBHOOK_SUSPENDED = "webhook.suspended"
    WEBHOOK_RECOVERED = "webhook.recovered"
    UPSTREAM_CHANGED = "upstream.changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    id: EventId
    principal: Principal
    seq: int
    name: EventName
    call_id: CallId | None
    """None for what happened to no call: to a webhook (then so are upstream and tool), or to an upstream."""
    client_session_id: str | None
    correlation_id: str | None
    upstream: str | None
    tool: str | None
    data: Mapping[str, Any] = field(repr=False)
    """What every listener may know; a delivery adds what is for its receiver only."""
    created_at: datetime

    @property
    def position(self) -> LogPosition:
        """The event's own place in the log: all that comes after it has a higher number."""
        return LogPosition(self.seq, event_mark(self.id))


def build_call_event(name: EventName, call: Call, *, event_id: EventId, seq: int, now: datetime) -> Event:
    """The event that tells what the call has just become."""
    return Event(
        id=event_id,
        principal=call.principal,
        seq=seq,
        name=name,
        call_id=call.id,
        client_session_id=call.client_session_id,
        correlation_id=call.correlation_id,
        upstream=call.upstream,
        tool=call.tool,
        data=call_event_data(name, call),
        created_at=now,
    )


def build_upstream_event(
    principal: Principal, upstream: str, *, change: str, uri: str | None, event_id: EventId, seq: int, now: datetime
) -> Event:
    """The event that tells that an upstream has changed. `uri` is one that the principal's own webhook names."""
    data = {"upstream": upstream, "change": change}
    return Event(
        id=event_id,
        principal=principal,
        seq=seq,
        name=EventName.UPSTREAM_CHANGED,
        call_id=None,
        client_session_id=None,
        correlation_id=None,
        upstream=upstream,
        tool=None,
        data=data if uri is None else {**data, "uri": uri},
        created_at=now,
    )


def call_event_data(name: EventName, call: Call) -> dict[str, Any]:
    """An event's `data`. No text that an upstream controls is in it, but for progress, which is asked for by name.

    Of what an upstream wants to know there are our keys; the questions themselves are read with the call.
    """
    data: dict[str, Any] = {
        "call_id": call.id,
        "status": str(call.status),
        "upstream": call.upstream,
        "tool": call.tool,
        "correlation_id": call.correlation_id,
        "client_session_id": call.client_session_id,
        "created_at": format_iso(call.created_at),
    }
    if name is EventName.CALL_FINISHED and call.finished_at is not None:
        data |= {
            "outcome": str(call.outcome),
            "result_bytes": call.result_bytes,
            "result_sha256": call.result_sha256,
            "finished_at": format_iso(call.finished_at),
        }
    if name is EventName.CALL_INPUT_REQUIRED:
        data["input_keys"] = list(call.input_requests)
    if name is EventName.CALL_PROGRESS and call.progress is not None:
        data["progress"] = progress_data(call.progress)
    return data


def progress_data(progress: Progress) -> dict[str, Any]:
    return {"progress": progress.progress, "total": progress.total, "message": progress.message}
