"""Events and their order in each principal's log.

`seq` is the position in the log. A transaction reserves it under the lock of the log's head and holds the lock until the
commit, so `seq` is the order of commits: after a reader has seen `seq` n, no event appears at or before n.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from ringback.domain.call import Call, Progress
from ringback.domain.call_outcome import CallOutcome, describe_error
from ringback.domain.clock import cut_to_milliseconds, format_iso
from ringback.domain.cursor import LogPosition, event_mark
from ringback.domain.ids import CallId, EventId
from ringback.domain.login_waits import find_login_url
from ringback.domain.principal import Principal
from ringback.domain.record_inits import quick_init


class EventName(StrEnum):
    CALL_FINISHED = "call.finished"
    CALL_INPUT_REQUIRED = "call.input_required"
    CALL_PROGRESS = "call.progress"
    WEBHOOK_FAILING = "webhook.failing"
    WEBHOOK_SUSPENDED = "webhook.suspended"
    WEBHOOK_RECOVERED = "webhook.recovered"
    UPSTREAM_CHANGED = "upstream.changed"


SUPERSEDING_EVENTS: Final = frozenset({EventName.CALL_PROGRESS, EventName.CALL_FINISHED})
"""These cancel open progress deliveries of the same call."""


def event_name(text: str) -> str:
    """The member of `EventName` with this value, or the text: the name of an external event (`domain.event_types`)."""
    return _OWN_NAMES.get(text, text)


_OWN_NAMES: Final[Mapping[str, EventName]] = {str(name): name for name in EventName}


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    id: EventId
    principal: Principal
    seq: int
    name: str
    """An `EventName`, or the name of an external event type (`domain.event_types`)."""
    call_id: CallId | None
    """None for events of a webhook (without upstream and tool), of an upstream, and for external events."""
    client_session_id: str | None
    correlation_id: str | None
    upstream: str | None
    tool: str | None
    data: Mapping[str, Any] = field(repr=False)
    """Members for every reader. A delivery adds members for its receiver only."""
    created_at: datetime
    """When the event entered the log: never before an earlier event of the log."""
    occurred_at: datetime | None = None
    """When an external event happened, by its source; None for events of Ringback's own. An external event is in the log once
    for its `id` and `topic`."""
    topic: str | None = None
    """The arguments with which an upstream was asked for this event (`event_types.arguments_topic`). None for no arguments,
    for published events and for events of Ringback's own."""

    @property
    def is_external(self) -> bool:
        """Whether an upstream sent it or a client published it."""
        return self.occurred_at is not None

    @property
    def timestamp(self) -> datetime:
        """When the event happened."""
        return self.created_at if self.occurred_at is None else self.occurred_at

    @property
    def position(self) -> LogPosition:
        """The event's own position in the log."""
        return LogPosition(self.seq, event_mark(self.id))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalEvent:
    """An event that an upstream sent or a client published, before it is in a log."""

    name: str
    """The name in the log (`domain.event_types`)."""
    id: EventId | None
    """The `eventId` of every reader. None makes one, so that each such event is a new one."""
    data: Mapping[str, Any] = field(repr=False)
    occurred_at: datetime | None = None
    """None is the time at which it enters the log."""
    topic: str | None = None
    upstream: str | None = None
    client_session_id: str | None = None
    correlation_id: str | None = None


def build_call_event(name: EventName, call: Call, *, event_id: EventId, seq: int, now: datetime) -> Event:
    """The event for the call's new state."""
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
    """The event for a change of an upstream. `uri` is a resource that a webhook of the principal names."""
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


def build_external_event(
    principal: Principal, external: ExternalEvent, *, event_id: EventId, seq: int, now: datetime
) -> Event:
    """The log's entry for an event that an upstream sent or a client published."""
    return Event(
        id=event_id,
        principal=principal,
        seq=seq,
        name=external.name,
        call_id=None,
        client_session_id=external.client_session_id,
        correlation_id=external.correlation_id,
        upstream=external.upstream,
        tool=None,
        data=external.data,
        created_at=now,
        occurred_at=cut_to_milliseconds(external.occurred_at or now),
        topic=external.topic,
    )


def call_event_data(name: EventName, call: Call) -> dict[str, Any]:
    """The event's `data`. It contains no text of the upstream, except in `call.progress`, which webhooks must subscribe to.

    Input requests appear by their keys; clients read the requests with the call.
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
            **error_data(call.outcome),
        }
    if name is EventName.CALL_INPUT_REQUIRED:
        data["input_keys"] = list(call.input_requests)
        if (login_url := find_login_url(call)) is not None:
            data["login_url"] = login_url
    if name is EventName.CALL_PROGRESS and call.progress is not None:
        data["progress"] = progress_data(call.progress)
    return data


def error_data(outcome: CallOutcome | None) -> dict[str, Any]:
    """The member `error` of a call that ended without a result or with an error of its tool."""
    error = describe_error(outcome)
    return {} if error is None else {"error": {"code": str(error.code), "message": error.message}}


def progress_data(progress: Progress) -> dict[str, Any]:
    return {"progress": progress.progress, "total": progress.total, "message": progress.message}
