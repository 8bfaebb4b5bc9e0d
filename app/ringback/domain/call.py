"""A call: one durable tool call, and every change that can happen to it.

    status   working ──▶ input_required ──▶ working …
                │               │
                └───────────────┴──▶ completed | failed | cancelled      (final: nothing follows)

    phase    queued ──▶ running ──▶ ended
               ▲ ▲         │ │        ▲
               │ └─────────┘ ▼        │
               └────────── parked ────┘

The statuses are MCP's own, and what a client sees. The phase says who has the call: a queued one wants a runner, a running one
has one, a parked one waits for answers and nobody has it. The two move apart: a call can wait for input while it runs.

The outcome tells why a call ended, truthfully:

    completed   result          the tool answered
                tool_error      the tool answered with isError
    failed      upstream_error  the upstream answered with a JSON-RPC error, or with something that is no answer
                rejected        the call never reached the upstream
                timed_out       its deadline passed
                unknown         it was dispatched, and then the upstream or the runner was lost: it may have run
    cancelled   cancelled

Expired is not a status: what has expired is gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.clock import seconds
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal

LABEL_LENGTH_MAX: Final = 256
"""Characters in a client_session_id or a correlation_id: both come back everywhere, so they stay small."""
MRTR_DRIVER: Final = "mrtr"
"""Names handles of calls that go on in rounds (2026-07-28): between two of them the upstream holds nothing."""
HANDLE_BYTES_MAX: Final = 64 * 1024
"""A task id is some forty bytes; a sealed requestState holds what its server would otherwise have kept in a session."""
CALL_RESOURCE_URI_PREFIX: Final = "ringback://calls/"


class CallStatus(StrEnum):
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class CallPhase(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    PARKED = "parked"
    ENDED = "ended"


class CallOutcome(StrEnum):
    RESULT = "result"
    TOOL_ERROR = "tool_error"
    UPSTREAM_ERROR = "upstream_error"
    REJECTED = "rejected"
    TIMED_OUT = "timed_out"
    UNKNOWN = "unknown"
    CANCELLED = "cancelled"


class RerunPolicy(StrEnum):
    """What may happen to a call that was dispatched and whose runner died."""

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
    CallPhase.QUEUED: frozenset({CallPhase.RUNNING, CallPhase.ENDED}),
    CallPhase.RUNNING: frozenset({CallPhase.QUEUED, CallPhase.PARKED, CallPhase.ENDED}),
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

INTERNAL_ERROR: Final = -32603
"""JSON-RPC internal error: the code of every error object that Ringback itself writes into a failed call."""


class IllegalTransition(Exception):
    """A final call was to change, or a status or phase was to follow one that it cannot follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The last progress an upstream told: MCP's progress, total and message."""

    progress: float
    total: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCompletion:
    """How a call ended, as a driver or the runner saw it: a stored result, or a JSON-RPC error, or neither (cancelled)."""

    outcome: CallOutcome
    result: bytes | None = field(default=None, repr=False)
    """The CallToolResult as JSON, exactly as it is kept and handed out."""
    error: dict[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """What finds a call again upstream, for any process: JSON that only its driver reads."""

    driver: str
    data: Mapping[str, Any] = field(repr=False)

    def __post_init__(self) -> None:
        if len(jsontext.dumps(self.data)) > HANDLE_BYTES_MAX:
            raise ValueError(f"A handle has at most {HANDLE_BYTES_MAX} bytes.")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequest:
    """A question of the tool. `name` is the upstream's own key for it; the call has one of ours."""

    name: str = field(repr=False)
    method: str
    params: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    id: CallId
    principal: Principal
    upstream: str
    tool: str
    arguments: dict[str, Any] = field(repr=False)
    meta: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """The client's `_meta`, reserved keys already dropped; its upstream's configuration decides what of it goes along."""
    client_session_id: str | None = None
    correlation_id: str | None = None
    idempotency_key: str | None = None
    request_hash: str
    """Over upstream, tool, canonical arguments and callback URL: what "the same request" means for an idempotency key."""
    status: CallStatus = CallStatus.WORKING
    phase: CallPhase = CallPhase.QUEUED
    outcome: CallOutcome | None = None
    progress: Progress | None = None
    error: dict[str, Any] | None = field(default=None, repr=False)
    result_bytes: int | None = None
    result_sha256: str | None = None
    handle: Handle | None = None
    input_requests: Mapping[str, InputRequest] = field(default_factory=dict[str, InputRequest])
    """Asked and not answered, by keys of ours that are never used twice in a call."""
    input_responses: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """Answered and not yet passed on, by the upstream's keys."""
    input_round: int = 0
    """How often something new was asked."""
    accepts_input: bool = False
    """Whether the starter can answer: only then is the upstream told that it may ask."""
    rerun_policy: RerunPolicy = RerunPolicy.NEVER
    rerun_allowed: bool = False
    """What the policy came to when the call was started."""
    cancel_requested: bool = False
    lease_owner: str | None = None
    lease_token: str | None = None
    lease_until: datetime | None = None
    dispatched_at: datetime | None = None
    """Committed before the first byte goes upstream; while it is null the call is simply queued."""
    runs: int = 0
    attended_until: datetime | None = None
    """Until then the client that started it stays to take the plain result itself."""
    token_version: int = 1
    """Resume tokens carry it; raising it revokes all older ones."""
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None = None
    deadline_at: datetime
    expires_at: datetime | None = None
    """When the result and its resume tokens go, together; set when the call ends."""

    @property
    def is_final(self) -> bool:
        return self.status in FINAL_CALL_STATUSES

    @property
    def answered_inline(self) -> bool:
        """Whether it ended while its client stayed for it: what a callback then tells is no news."""
        ended_at, attended_until = self.finished_at, self.attended_until
        return ended_at is not None and attended_until is not None and ended_at <= attended_until


def call_resource_uri(call: Call) -> str:
    """Under which MCP clients read the call, and in the end its result."""
    return f"{CALL_RESOURCE_URI_PREFIX}{call.id}"


def compute_request_hash(*, upstream: str, tool: str, arguments: dict[str, Any], callback_url: str | None) -> str:
    return jsontext.sha256(jsontext.dumps_canonical([upstream, tool, arguments, callback_url]))


def advance_status(call: Call, status: CallStatus, *, now: datetime) -> Call:
    """The call in its next status; every change of status in the product goes through here or through `finish`.

    Only `finish` ends a call, so that there is no final call without its outcome.
    """
    if status in FINAL_CALL_STATUSES:
        raise IllegalTransition(f"{call.id}: {status} without an outcome")
    return _with_status(call, status, now=now)


def enter_phase(call: Call, phase: CallPhase, *, now: datetime) -> Call:
    """The call in its next phase, which only a runner that leases it holds on to: in every other it has no lease.

    Leasing itself is the store's, row by row; `finish` alone ends a call.
    """
    if phase is CallPhase.ENDED:
        raise IllegalTransition(f"{call.id}: {phase} without an outcome")
    return _with_phase(call, phase, now=now)


def apply_completion(call: Call, completion: CallCompletion, *, now: datetime, result_retention_seconds: float) -> Call:
    """The call at its end: status from the outcome, digest of the result, nothing asked, and the day it expires."""
    status = STATUS_BY_OUTCOME[completion.outcome]
    _check_status(call, status)
    _check_phase(call, CallPhase.ENDED)
    return replace(
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


def completion_from_result(result: bytes, *, is_error: bool) -> CallCompletion:
    return CallCompletion(outcome=CallOutcome.TOOL_ERROR if is_error else CallOutcome.RESULT, result=result)


def completion_from_upstream_error(error: dict[str, Any]) -> CallCompletion:
    """The upstream's own JSON-RPC error object, kept as it came."""
    return CallCompletion(outcome=CallOutcome.UPSTREAM_ERROR, error=error)


def is_upstream_error(completion: CallCompletion) -> bool:
    """Whether it is an upstream's own error, and not one of our wording about what an upstream has answered."""
    our_data = {"outcome": str(completion.outcome)}
    return completion.outcome is CallOutcome.UPSTREAM_ERROR and (completion.error or {}).get("data") != our_data


def failed_completion(outcome: CallOutcome, message: str) -> CallCompletion:
    """A failure that Ringback words itself; the outcome is repeated in `data`, where MCP clients can see it."""
    return CallCompletion(
        outcome=outcome,
        error={"code": INTERNAL_ERROR, "message": message, "data": {"outcome": str(outcome)}},
    )


def overdue_completion(call: Call) -> CallCompletion:
    """The end of a call whose deadline has passed."""
    if call.dispatched_at is not None:
        return failed_completion(CallOutcome.TIMED_OUT, "The call's deadline passed before the tool answered.")
    return failed_completion(
        CallOutcome.REJECTED,
        "The call's deadline passed before the upstream could take it: it was busy, away, or not configured any more. "
        "See how it is doing: GET /v1/upstreams",
    )


def has_no_upstream_state(call: Call) -> bool:
    """Whether no upstream is at work for it or keeps anything of it: it was never sent, or stands between two rounds."""
    if call.dispatched_at is None:
        return True
    return (
        call.phase in {CallPhase.QUEUED, CallPhase.PARKED}
        and call.handle is not None
        and call.handle.driver == MRTR_DRIVER
    )


CANCELLED_COMPLETION: Final = CallCompletion(outcome=CallOutcome.CANCELLED)


def _keep_task_id(handle: Handle | None) -> Handle | None:
    """What stays of a handle after the end: which task it was, so that it is not adopted by somebody else."""
    if handle is None or "task_id" not in handle.data:
        return None
    return Handle(driver=handle.driver, data={"task_id": handle.data["task_id"]})


def _with_status(call: Call, status: CallStatus, *, now: datetime) -> Call:
    _check_status(call, status)
    return replace(call, status=status, updated_at=now)


def _with_phase(call: Call, phase: CallPhase, *, now: datetime) -> Call:
    _check_phase(call, phase)
    return replace(call, phase=phase, updated_at=now, lease_owner=None, lease_token=None, lease_until=None)


def _check_status(call: Call, status: CallStatus) -> None:
    if status not in STATUS_TRANSITIONS[call.status]:
        raise IllegalTransition(f"{call.id}: {call.status} -> {status}")


def _check_phase(call: Call, phase: CallPhase) -> None:
    if phase not in PHASE_TRANSITIONS[call.phase]:
        raise IllegalTransition(f"{call.id}: {call.phase} -> {phase}")
