"""A call: one durable tool call, and every change that can happen to it.

    status   working ──▶ input_required ──▶ working …
                │               │
                └───────────────┴──▶ completed | failed | cancelled      (final: nothing follows)

    phase    scheduled ──▶ queued ──▶ running ──▶ ended
                            ▲ ▲         │ │        ▲
                            │ └─────────┘ ▼        │
                            └────────── parked ────┘

Clients see the status, whose values are MCP's. The phase says whether a runner holds the call: a scheduled call waits for its
`not_before`, a queued call waits for a runner, a running call has one, and a parked call waits for answers without one. A call
can wait for input while it runs. A scheduled, queued or parked call can end, for example by a cancellation.

The outcome says why a call ended (`call_outcome`). Expired is not a status: an expired call is deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from ringback.domain import jsontext
from ringback.domain.call_outcome import CallCompletion, CallError, CallOutcome, describe_error, failed_completion
from ringback.domain.clock import seconds
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal
from ringback.domain.record_copies import make_copier
from ringback.domain.record_inits import quick_init

LABEL_LENGTH_MAX: Final = 256
"""Characters in a client_session_id or a correlation_id. Every callback repeats both, so they stay small."""
MRTR_DRIVER: Final = "mrtr"
"""The driver of calls that run in rounds (2026-07-28). Between two rounds the upstream keeps no state."""
HANDLE_BYTES_MAX: Final = 64 * 1024
"""A task id has some 40 bytes; a sealed requestState holds what the server would otherwise keep in a session."""
UNREADABLE_MEMBER: Final = "ringback/unreadable"
"""In the `_meta` of a call whose stored arguments were sealed with a key that is missing. Clients cannot send it."""
CALL_RESOURCE_URI_PREFIX: Final = "ringback://calls/"


class CallStatus(StrEnum):
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN_CALL_STATUSES: Final = (CallStatus.WORKING, CallStatus.INPUT_REQUIRED)


class CallPhase(StrEnum):
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    PARKED = "parked"
    ENDED = "ended"


class WaitCause(StrEnum):
    """What a call that does not run waits for, as far as the store knows it for certain."""

    NOT_BEFORE = "not_before"
    """Its time."""
    QUEUE = "queue"
    """Its turn, which comes once a place at its upstream is free and the upstream is neither paused nor away."""
    UPSTREAM = "upstream"
    """A runner has leased it and has not sent it: there is no connection or token yet, or the upstream answered HTTP 429."""


class RerunPolicy(StrEnum):
    """Whether a call may run again after its runner died during the dispatch."""

    NEVER = "never"
    IF_SAFE = "if_safe"
    ALWAYS = "always"


FINAL_CALL_STATUSES: Final = frozenset({CallStatus.COMPLETED, CallStatus.FAILED, CallStatus.CANCELLED})

STATUS_TRANSITIONS: Final[dict[CallStatus, frozenset[CallStatus]]] = {
    CallStatus.WORKING: frozenset({CallStatus.INPUT_REQUIRED}) | FINAL_CALL_STATUSES,
    CallStatus.INPUT_REQUIRED: frozenset({CallStatus.WORKING}) | FINAL_CALL_STATUSES,
    CallStatus.COMPLETED: frozenset(),
    CallStatus.FAILED: frozenset(),
    CallStatus.CANCELLED: frozenset(),
}

PHASE_TRANSITIONS: Final[dict[CallPhase, frozenset[CallPhase]]] = {
    CallPhase.SCHEDULED: frozenset({CallPhase.QUEUED, CallPhase.ENDED}),
    CallPhase.QUEUED: frozenset({CallPhase.RUNNING, CallPhase.ENDED}),
    CallPhase.RUNNING: frozenset({CallPhase.QUEUED, CallPhase.SCHEDULED, CallPhase.PARKED, CallPhase.ENDED}),
    CallPhase.PARKED: frozenset({CallPhase.QUEUED, CallPhase.ENDED}),
    CallPhase.ENDED: frozenset(),
}

STATUS_BY_OUTCOME: Final[dict[CallOutcome, CallStatus]] = {
    CallOutcome.RESULT: CallStatus.COMPLETED,
    CallOutcome.TOOL_ERROR: CallStatus.COMPLETED,
    CallOutcome.UPSTREAM_ERROR: CallStatus.FAILED,
    CallOutcome.REJECTED: CallStatus.FAILED,
    CallOutcome.TIMED_OUT: CallStatus.FAILED,
    CallOutcome.UNKNOWN: CallStatus.FAILED,
    CallOutcome.CANCELLED: CallStatus.CANCELLED,
}


class IllegalTransition(Exception):
    """The call is final, or its new status or phase may not follow the present one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The last progress that the upstream reported: MCP's progress, total and message."""

    progress: float
    total: float | None = None
    message: str | None = None


class ServerFingerprint(NamedTuple):
    """Which server a handle belongs to (`upstreams.server_fingerprints`)."""

    address: str
    """Of its URL or its command."""
    server_id: str | None = None
    """What the operator calls the server; None if the upstream's entry does not say it."""

    def is_same_server(self, other: "ServerFingerprint") -> bool:
        """The ids decide if both have one: a server that was moved keeps its id. Otherwise the addresses decide."""
        if self.server_id is not None and other.server_id is not None:
            return self.server_id == other.server_id
        return self.address == other.address


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """Data with which any process can resume a call at its upstream. Only the driver that wrote it reads it."""

    driver: str
    data: Mapping[str, Any] = field(repr=False)
    server_fingerprint: ServerFingerprint | None = field(default=None, compare=False)
    """Of the server that made the data: no other one gets them. None in handles that are not stored yet, in those of older
    versions, and in those of reported calls."""

    def __post_init__(self) -> None:
        if len(jsontext.dumps(self.data)) > HANDLE_BYTES_MAX:
            raise ValueError(f"A handle has at most {HANDLE_BYTES_MAX} bytes.")

    @property
    def task_id(self) -> str | None:
        """The upstream's id of the task, if the handle is that of a task."""
        return self.data.get("task_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequest:
    """An input request of the tool. `name` is the upstream's key; `Call.input_requests` uses keys made here."""

    name: str = field(repr=False)
    method: str
    params: Mapping[str, Any] = field(repr=False)


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    id: CallId
    principal: Principal
    upstream: str
    tool: str
    arguments: dict[str, Any] | None = field(default=None, repr=False, compare=False)
    """None if the call was read without them, which is the same call. They may have megabytes, so only who sends or shows them
    reads them, and `meta`."""
    meta: dict[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)
    """The client's `_meta` without reserved keys. The upstream's configuration decides which keys are forwarded."""
    client_session_id: str | None = None
    correlation_id: str | None = None
    idempotency_key: str | None = None
    request_hash: str
    """A hash of upstream, tool, canonical arguments and callback URL. An idempotency key may repeat only with the same hash."""
    status: CallStatus = CallStatus.WORKING
    phase: CallPhase = CallPhase.QUEUED
    outcome: CallOutcome | None = None
    progress: Progress | None = None
    error: dict[str, Any] | None = field(default=None, repr=False)
    result_bytes: int | None = None
    result_sha256: str | None = None
    handle: Handle | None = None
    input_requests: Mapping[str, InputRequest] = field(default_factory=dict[str, InputRequest])
    """Open input requests. Their keys are made here and never used twice in a call."""
    input_responses: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """Answers that are not yet sent to the upstream, by the upstream's keys."""
    input_round: int = 0
    """Rounds of new input requests so far."""
    accepts_input: bool = False
    """Whether the starter can answer input requests. Only then is elicitation declared to the upstream."""
    rerun_policy: RerunPolicy = RerunPolicy.NEVER
    rerun_allowed: bool = False
    """What the policy decided when the call started."""
    cancel_requested: bool = False
    lease_owner: str | None = None
    lease_token: str | None = None
    lease_until: datetime | None = None
    dispatched_at: datetime | None = None
    """Committed before the first byte is sent upstream. A call without it can be queued again safely."""
    runs: int = 0
    attended_until: datetime | None = None
    """Until this instant the client that started the call waits for the result on its own connection."""
    token_version: int = 1
    """Resume tokens carry it; raising it revokes all older tokens."""
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None = None
    not_before: datetime | None = None
    """When a call that starts later is queued. None for a call that was queued at once."""
    deadline_at: datetime
    expires_at: datetime | None = None
    """When the result and the resume tokens expire. Set when the call ends."""
    traceparent: str | None = field(default=None, repr=False)
    """The trace context of the request that started the call (W3C); None without traces."""

    @property
    def is_final(self) -> bool:
        return self.status in FINAL_CALL_STATUSES

    @property
    def waits_for(self) -> WaitCause | None:
        """None for a call that runs, also without a runner, or has ended, and for one that waits for answers."""
        match self.phase:
            case CallPhase.SCHEDULED:
                return WaitCause.NOT_BEFORE
            case CallPhase.QUEUED if has_no_upstream_state(self):
                return WaitCause.QUEUE
            case CallPhase.RUNNING if self.dispatched_at is None:
                return WaitCause.UPSTREAM
            case _:
                return None

    @property
    def described_error(self) -> CallError | None:
        """The error as its owner reads it, with the stored message and JSON-RPC error object. Both can be the upstream's."""
        described = describe_error(self.outcome)
        if described is None or self.error is None:
            return described
        return replace(described, message=str(self.error.get("message") or described.message), jsonrpc=self.error)

    @property
    def answered_inline(self) -> bool:
        """Whether the call ended while its client waited for it, so that a callback repeats what the client knows."""
        ended_at, attended_until = self.finished_at, self.attended_until
        return ended_at is not None and attended_until is not None and ended_at <= attended_until


copy_call: Final = make_copier(Call)
"""The call with other values of the fields that are named."""


def call_resource_uri(call: Call) -> str:
    """The URI under which MCP clients read the call and its result."""
    return f"{CALL_RESOURCE_URI_PREFIX}{call.id}"


def compute_request_hash(*, upstream: str, tool: str, arguments: dict[str, Any], callback_url: str | None) -> str:
    return jsontext.sha256(jsontext.dumps_canonical([upstream, tool, arguments, callback_url]))


def count_argument_bytes(arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> int:
    """The bytes that a call with these arguments and this `_meta` counts for the quota `argument_bytes`."""
    return len(jsontext.dumps(arguments)) + len(jsontext.dumps(meta))


def advance_status(call: Call, status: CallStatus, *, now: datetime) -> Call:
    """The call in its next status. Only `apply_completion` ends a call, so every final call has an outcome."""
    if status in FINAL_CALL_STATUSES:
        raise IllegalTransition(f"{call.id}: {status} without an outcome")
    _check_status(call, status)
    return copy_call(call, status=status, updated_at=now)


def enter_phase(call: Call, phase: CallPhase, *, now: datetime) -> Call:
    """The call in its next phase, without a lease. The store leases calls; `apply_completion` ends them."""
    if phase is CallPhase.ENDED:
        raise IllegalTransition(f"{call.id}: {phase} without an outcome")
    _check_phase(call, phase)
    return copy_call(call, phase=phase, updated_at=now, lease_owner=None, lease_token=None, lease_until=None)


def apply_completion(call: Call, completion: CallCompletion, *, now: datetime, result_retention_seconds: float) -> Call:
    """The ended call: status from the outcome, size and digest of the result, no input requests, no lease, an expiry."""
    status = STATUS_BY_OUTCOME[completion.outcome]
    _check_status(call, status)
    _check_phase(call, CallPhase.ENDED)
    return copy_call(
        call,
        status=status,
        phase=CallPhase.ENDED,
        outcome=completion.outcome,
        error=completion.error,
        result_bytes=None if completion.result is None else len(completion.result),
        result_sha256=None if completion.result is None else jsontext.sha256(completion.result),
        updated_at=now,
        finished_at=now,
        expires_at=now + seconds(result_retention_seconds),
        lease_owner=None,
        lease_token=None,
        lease_until=None,
        handle=_keep_task_id(call.handle),
        input_requests={},
        input_responses={},
    )


def overdue_completion(call: Call) -> CallCompletion:
    """The completion of a call whose deadline has passed. One that ran before it was queued again may have done its work."""
    if call.dispatched_at is not None or call.runs > 0:
        return failed_completion(CallOutcome.TIMED_OUT, "The call's deadline passed before the tool answered.")
    return failed_completion(
        CallOutcome.REJECTED,
        "The call's deadline passed before it was sent: Ringback was stopped, or the upstream was busy, away, paused or not "
        "configured any more. The tool did not run.",
    )


def awaits_confirmation(call: Call, *, now: datetime, confirmed_now: datetime) -> bool:
    """Whether nothing of the call is running and its deadline has passed only by an unconfirmed clock (`clock_confirmation`).

    It must neither be sent, if the clock is right, nor end, if the clock is wrong.
    """
    is_unsent = call.dispatched_at is None or (call.handle is not None and call.handle.driver == MRTR_DRIVER)
    return is_unsent and confirmed_now < call.deadline_at <= now


def sends_arguments(call: Call) -> bool:
    """Whether the next request of the call has its arguments: each round repeats them, and what follows a task does not."""
    return call.handle is None or call.handle.driver == MRTR_DRIVER


def is_dispatched_by_lease(call: Call) -> bool:
    """Whether the transaction that leased this call has also marked it as dispatched.

    A queued call without a handle is not dispatched, and `mark_dispatched` comes later.
    """
    return call.dispatched_at is not None and call.handle is None


def is_lease_current(call: Call, *, now: datetime) -> bool:
    """False after the machine was suspended for longer than the lease: monotonic clocks stand still meanwhile."""
    return call.lease_until is not None and now < call.lease_until


def without_dispatch(call: Call) -> Call:
    """The call as it was before its dispatch: its request was not sent, or the upstream refused it unread."""
    return call if call.dispatched_at is None else copy_call(call, dispatched_at=None, runs=call.runs - 1)


def has_no_upstream_state(call: Call) -> bool:
    """Whether no upstream runs the call or keeps state for it: it was never dispatched, or is between two rounds."""
    if call.dispatched_at is None:
        return True
    return (
        call.phase in {CallPhase.QUEUED, CallPhase.PARKED}
        and call.handle is not None
        and call.handle.driver == MRTR_DRIVER
    )


def _keep_task_id(handle: Handle | None) -> Handle | None:
    """The handle of an ended call keeps its task id, so that the task cannot be adopted a second time."""
    if handle is None or handle.task_id is None:
        return None
    return replace(handle, data={"task_id": handle.task_id})


def _check_status(call: Call, status: CallStatus) -> None:
    if status not in STATUS_TRANSITIONS[call.status]:
        raise IllegalTransition(f"{call.id}: {call.status} -> {status}")


def _check_phase(call: Call, phase: CallPhase) -> None:
    if phase not in PHASE_TRANSITIONS[call.phase]:
        raise IllegalTransition(f"{call.id}: {call.phase} -> {phase}")
