"""The responses of the REST API as frozen values.

The models are tolerant, so that a client works with older and newer services: unknown members are ignored, statuses and states
are strings, and members that another version may omit have defaults.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

FINAL_STATUSES: Final = frozenset({"completed", "failed", "cancelled"})
"""MCP's final statuses: nothing follows them."""


def _is_none(value: object) -> bool:
    return value is None


OwnerName = Annotated[str | None, Field(exclude_if=_is_none)]
"""Dumped only if it is set, as the REST API sends it."""


class ClientModel(BaseModel):
    # Pydantic builds a model at its first use: building all of them took half of the import time.
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, defer_build=True)


class Progress(ClientModel):
    """The last progress that the upstream reported."""

    progress: float
    total: float | None = None
    message: str | None = None


class InputRequest(ClientModel):
    """A tool's request for input: an MCP request, answered with an ElicitResult."""

    method: str
    params: Mapping[str, Any] = Field(repr=False)


class CallError(ClientModel):
    """Why a call ended without a result, or that its tool returned an error."""

    code: str
    """The outcome: tool_error | upstream_error | rejected | timed_out | unknown | cancelled"""
    message: str = Field(repr=False)
    """What happened. After `upstream_error` it is the upstream's text."""
    jsonrpc: Mapping[str, Any] | None = Field(default=None, repr=False)
    """The JSON-RPC error object of a failed call: the upstream's, or the service's with `data.outcome`."""


class Call(ClientModel):
    """One durable tool call."""

    id: str
    principal: OwnerName = None
    """The owner, for an operator (`RingbackClient(principal=…)`); else None."""
    upstream: str
    tool: str
    status: str
    """working | input_required | completed | failed | cancelled"""
    waits_for: str | None = None
    """Why it does not run now: not_before (it starts later) | queue (it waits for its turn) | upstream (its turn has come, and
    it is not sent yet). None for a call that runs, waits for answers or has ended."""
    outcome: str | None = None
    """How it ended: result | tool_error | upstream_error | rejected | timed_out | unknown | cancelled"""
    client_session_id: str | None = None
    correlation_id: str | None = None
    progress: Progress | None = None
    error: CallError | None = None
    """None while it is open, and for the outcome `result`."""
    result_bytes: int | None = None
    result_sha256: str | None = None
    accepts_input: bool = False
    input_requests: Mapping[str, InputRequest] = {}
    """The tool's open requests for input, answered by `RingbackClient.answer`."""
    rerun_policy: str | None = None
    """never | if_safe | always"""
    cancel_requested: bool = False
    runs: int = 0
    """How often it was sent to its upstream."""
    dispatched_at: datetime | None = None
    """None while the call is scheduled or queued."""
    created_at: datetime
    updated_at: datetime | None = None
    finished_at: datetime | None = None
    not_before: datetime | None = None
    """When a call that starts later is queued."""
    deadline_at: datetime | None = None
    expires_at: datetime | None = None
    """When the result and its resume tokens are removed."""

    @property
    def final(self) -> bool:
        return self.status in FINAL_STATUSES


class Answered(ClientModel):
    """The outcome of answering requests for input."""

    call: Call
    accepted: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    """Keys without an open request."""


class Listener(ClientModel):
    """A webhook that receives a callback when the call ends."""

    id: str
    state: str
    paused_at: datetime | None = None
    url: str
    outcomes: tuple[str, ...] | None = None
    """It receives a callback only for these outcomes; None means all."""


def _call_id_of(members: dict[str, Any]) -> str:
    """For services that send `call` alone."""
    return members["call"].id


class Started(ClientModel):
    """The response to starting a call."""

    call: Call
    call_id: str = Field(default_factory=_call_id_of)
    resume_token: str = Field(repr=False)
    webhooks: tuple[Listener, ...] = ()
    callback_secret: str | None = Field(default=None, repr=False)
    """The inline callback's signing secret if you gave none. For an hour, the same request shows it again."""
    hint: str | None = None
    result: Mapping[str, Any] | None = Field(default=None, repr=False)
    """The CallToolResult if the call ended within the wait."""


class BatchedCall(Started):
    """One call of a batch."""

    replayed: bool = False
    """Whether its idempotency key named a call that existed already."""


class StartedBatch(ClientModel):
    calls: tuple[BatchedCall, ...]


class Cancellation(ClientModel):
    """The outcome of a cancellation by filter."""

    cancelled: int
    """Calls that ended at once."""
    requested: int = 0
    """Calls whose upstream gets a cancellation."""
    more: bool = False
    """Whether the limit of one request was reached. A repeated request continues."""


class Event(ClientModel):
    """An event of a call."""

    event_id: str = Field(alias="eventId")
    principal: OwnerName = None
    """The owner, for an operator (`RingbackClient(principal=…)`); else None."""
    name: str
    timestamp: datetime
    cursor: str | None = None
    """The place after this event in the log."""
    data: Mapping[str, Any] = Field(repr=False)


class EventPage(ClientModel):
    events: tuple[Event, ...]
    cursor: str
    """Poll with it to get the next page."""
    truncated: bool = False
    """Whether events after the requested cursor are missing: removed by retention, or lost when a backup was restored."""
    has_more: bool = False


class PublishedEvent(ClientModel):
    """The result of publishing one event."""

    event_id: str = Field(alias="eventId")
    created: bool
    """False if the log had an event of this id."""


class PublishedEvents(ClientModel):
    events: tuple[PublishedEvent, ...]


class EventType(ClientModel):
    """A type of events besides Ringback's own: one that you publish, or one of an upstream."""

    name: str
    upstream: str | None = None
    """The upstream that offers it; None for your own types."""
    description: str
    input_schema: Mapping[str, Any] = Field(repr=False)
    payload_schema: Mapping[str, Any] = Field(repr=False)
    warning: str | None = None
    """After a declaration: the schema has changed otherwise than by addition, and where."""


class EventTypeList(ClientModel):
    event_types: tuple[EventType, ...]


class Resumed(ClientModel):
    """The call of a resume token."""

    call: Call
    result: Mapping[str, Any] | None = Field(default=None, repr=False)
    """The CallToolResult, once there is one."""
    events: tuple[Event, ...] = ()
    """The call's events since the token was made."""
    truncated: bool = False
    """Whether the token refers to an event log that was lost when a backup was restored. Then these are all its events."""
    resume_token: str = Field(repr=False)
    """A new token, whose events begin after these."""


class ResumeToken(ClientModel):
    resume_token: str = Field(repr=False)


class Joined(ClientModel):
    calls: tuple[Call, ...]
    done: bool


class ListPage(ClientModel):
    next_cursor: str | None = None
    """The cursor of the next page; None on the last."""


class CallPage(ListPage):
    calls: tuple[Call, ...]
