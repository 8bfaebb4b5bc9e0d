"""Responses about calls, and the answers to a call's questions. `call_requests` has the requests."""

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field

from ringback.domain.call import Call, CallStatus, RerunPolicy, WaitCause
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.ids import CallId
from ringback.domain.inputs import InputAnswer
from ringback.domain.wait_words import describe_pause
from ringback.domain.webhook import WebhookState
from ringback.schemas.fields import (
    NEXT_CURSOR_DESCRIPTION,
    OWNER_DESCRIPTION,
    Instant,
    OmittedIfNone,
    ResponseBody,
)
from ringback.schemas.webhooks import sorted_or_none
from ringback.services.calls.cancellation import BulkCancellation
from ringback.services.calls.new_calls import StartedCall

NO_WEBHOOK_HINT = (
    "No webhook receives a callback when this call ends. Register one (POST /v1/webhooks), send a `callback` with the call, "
    "or poll: GET /v1/calls/{id}?wait_seconds=45"
)


class ProgressView(ResponseBody):
    progress: float
    total: float | None
    message: str | None


class InputRequestView(ResponseBody):
    """A question of the tool: an MCP request. The answer is an ElicitResult."""

    method: str
    params: dict[str, Any]


CallErrorCode = Literal[
    CallOutcome.TOOL_ERROR,
    CallOutcome.UPSTREAM_ERROR,
    CallOutcome.REJECTED,
    CallOutcome.TIMED_OUT,
    CallOutcome.UNKNOWN,
    CallOutcome.CANCELLED,
]
"""The outcomes that are no result."""


class CallErrorView(ResponseBody):
    """Why a call ended without a result, or that its tool returned an error. `call.finished` has the same `code`."""

    code: CallErrorCode
    message: str = Field(description="What happened. After `upstream_error` it is the upstream's text.")
    jsonrpc: dict[str, Any] | None = Field(
        description="The JSON-RPC error object of a failed call: the upstream's, or the service's with `data.outcome`. If "
        "another Ringback behind this one reports the outcome `unknown`, its error object is in `data.cause`."
    )


class CallView(ResponseBody):
    """One durable tool call."""

    id: str
    owner: OmittedIfNone[str] = Field(default=None, serialization_alias="principal", description=OWNER_DESCRIPTION)
    upstream: str
    tool: str
    client_session_id: str | None
    correlation_id: str | None
    status: CallStatus
    waits_for: WaitCause | None = Field(
        description="Why the call does not run now. `not_before`: it starts later. `queue`: it waits for its turn at the "
        "upstream, which runs `max_concurrent` calls at once, of one of several principals three quarters at most; or the "
        "upstream is paused or away (its `intake` and `state` in GET /v1/upstreams). `upstream`: its turn has come, and it is "
        "not sent yet, for lack of a connection or after HTTP 429. Null for a call that runs, waits for answers or has ended."
    )
    outcome: CallOutcome | None = Field(description="Why the call ended. `unknown` means that the tool may have run.")
    progress: ProgressView | None
    error: CallErrorView | None = Field(
        validation_alias="described_error", description="Null while the call is open, and for the outcome `result`."
    )
    result_bytes: int | None
    result_sha256: str | None
    accepts_input: bool
    input_requests: dict[str, InputRequestView] = Field(
        description="The tool's open questions by key. Answer them: POST /v1/calls/{id}/input"
    )
    rerun_policy: RerunPolicy
    cancel_requested: bool = Field(
        description="A cancellation was requested. The status shows how the call then ended."
    )
    runs: int = Field(
        description="How many times the call was started at its upstream. A start that is found unsent is taken back, unless "
        "the call ends with it."
    )
    created_at: Instant
    updated_at: Instant
    dispatched_at: Instant | None = Field(
        description="When the call was last sent to its upstream; null if it was not."
    )
    finished_at: Instant | None
    not_before: Instant | None = Field(
        description="When a call that starts later is queued. Null if it was queued at once."
    )
    deadline_at: Instant
    expires_at: Instant | None = Field(description="When the result is deleted and its resume tokens expire.")

    @classmethod
    def from_call(cls, call: Call, *, shows_owner: bool = False) -> Self:
        view = cls.model_validate(call)
        return view.model_copy(update={"owner": call.principal}) if shows_owner else view


class ListenerView(ResponseBody):
    """A webhook that receives a callback when the call ends."""

    id: str
    state: WebhookState
    paused_at: Instant | None = Field(description="When its owner paused it; null while it is not paused")
    url: str
    outcomes: Annotated[list[CallOutcome] | None, BeforeValidator(sorted_or_none)] = Field(
        description="It receives a callback only if the call ends with one of these outcomes; null means all."
    )


class StartedCallView(ResponseBody):
    """A call that the service has stored. It runs from now on, also after you disconnect."""

    call_id: str
    call: CallView
    resume_token: str
    webhooks: list[ListenerView] = Field(description="The webhooks that receive a callback when the call ends.")
    hint: OmittedIfNone[str] = Field(
        default=None,
        description="Says that an operator has paused the upstream, and what to do if no webhook receives a callback.",
    )
    callback_secret: OmittedIfNone[str] = Field(
        default=None,
        description="The callback's generated signing secret. Only this response shows it, and within an hour the responses to "
        "the same request.",
    )
    result: OmittedIfNone[dict[str, Any]] = Field(
        default=None, description="The CallToolResult, if the call ended during `wait_seconds`."
    )

    @classmethod
    def from_started(cls, started: StartedCall, call: Call, *, is_paused: bool = False) -> Self:
        hints = [
            *([describe_pause(call.upstream)] if is_paused else []),
            *([] if started.webhooks else [NO_WEBHOOK_HINT]),
        ]
        return cls(
            call_id=call.id,
            call=CallView.from_call(call),
            resume_token=started.resume_token,
            webhooks=[ListenerView.model_validate(webhook) for webhook in started.webhooks],
            hint=None if call.is_final or not hints else " ".join(hints),
            callback_secret=started.callback_secret,
        )


class BatchedCallView(StartedCallView):
    """One call of a batch."""

    replayed: bool = Field(description="Whether its idempotency key named a call that existed already.")

    @classmethod
    def from_batched(cls, started: StartedCall, *, is_paused: bool) -> Self:
        view = StartedCallView.from_started(started, started.call, is_paused=is_paused)
        return cls(**dict(view), replayed=not started.is_new)


class StartedBatchView(ResponseBody):
    """Calls that the service has stored together. They run from now on, also after you disconnect."""

    calls: list[BatchedCallView] = Field(description="In the order of the request.")

    @classmethod
    def from_started(cls, batch: Sequence[StartedCall], *, paused: Collection[CallId]) -> Self:
        """`paused`: the calls that wait because an operator has paused their upstream."""
        return cls(calls=[BatchedCallView.from_batched(each, is_paused=each.call.id in paused) for each in batch])


class JoinedCallsView(ResponseBody):
    calls: list[CallView] = Field(description="In the order of `call_ids`.")
    done: bool = Field(description="Whether any or all of the calls have ended, as `mode` says.")

    @classmethod
    def from_calls(cls, calls: Sequence[Call], *, done: bool) -> Self:
        return cls(calls=[CallView.from_call(call) for call in calls], done=done)


class CallPageView(ResponseBody):
    calls: list[CallView]
    next_cursor: str | None = Field(description=NEXT_CURSOR_DESCRIPTION)

    @classmethod
    def from_calls(cls, calls: Sequence[Call], next_cursor: str | None, *, shows_owner: bool = False) -> Self:
        return cls(calls=[CallView.from_call(call, shows_owner=shows_owner) for call in calls], next_cursor=next_cursor)


class CancelledCallsView(ResponseBody):
    cancelled: int = Field(description="The number of calls that ended at once.")
    requested: int = Field(
        description="The number of calls whose upstream gets a cancellation. Its response decides how they end."
    )
    more: bool = Field(description="Whether the request reached its limit. Send it again to continue.")

    @classmethod
    def from_cancellation(cls, cancellation: BulkCancellation) -> Self:
        return cls(cancelled=cancellation.cancelled, requested=cancellation.requested, more=cancellation.has_more)


class AnsweredView(ResponseBody):
    call: CallView
    accepted: list[str] = Field(description="The keys that this request answered.")
    ignored: list[str] = Field(description="The keys without an open question.")

    @classmethod
    def from_answer(cls, answered: InputAnswer) -> Self:
        return cls.model_validate(answered)
