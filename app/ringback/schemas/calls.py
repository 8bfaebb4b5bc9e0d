"""Requests and responses of calls, and the answers to a call's questions."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, Strict

from ringback.domain.call import Call, CallStatus, RerunPolicy
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.call_rows import CallFilter
from ringback.domain.inputs import InputAnswer
from ringback.domain.webhook import WebhookState
from ringback.schemas.fields import (
    DRY_RUN_DESCRIPTION,
    NEXT_CURSOR_DESCRIPTION,
    OWNER_DESCRIPTION,
    PAGE_SIZE_DEFAULT,
    Cursor,
    Id,
    IdempotencyKey,
    Instant,
    InstantWithOffset,
    Label,
    OmittedIfNone,
    PageSize,
    PrincipalQueryParams,
    RequestBody,
    ResponseBody,
    StrictBool,
    WaitSeconds,
)
from ringback.schemas.webhooks import CallCallbackBody, sorted_or_none
from ringback.services.bulk_cancellation import BulkCancellation
from ringback.services.call_starts import BATCH_SIZE_MAX, START_DELAY_MAX, StartCallRequest
from ringback.services.calls import JoinMode
from ringback.services.input_answers import INPUT_RESPONSES_MAX
from ringback.services.new_calls import TIMEOUT_SECONDS_DEFAULT, TIMEOUT_SECONDS_MAX, StartedCall
from ringback.services.registrations import WebhookRegistration

NO_WEBHOOK_HINT = (
    "No webhook receives a callback when this call ends. Register one (POST /v1/webhooks), send a `callback` with the call, "
    "or poll: GET /v1/calls/{id}?wait_seconds=60"
)

JOIN_CALLS_MAX: Final = 100
"""Calls in one wait: as many as on one page."""


OptionalCallback = Annotated[
    CallCallbackBody | None, Field(description="The callback of this call. It needs the scope `webhooks` too.")
]


def to_registration(callback: CallCallbackBody | None) -> WebhookRegistration | None:
    return None if callback is None else callback.to_registration()


TimeoutSeconds = Annotated[float, Strict(), Field(gt=0, le=TIMEOUT_SECONDS_MAX)]


class CallBody(RequestBody):
    """A tool call to start. A request for one call and each call of a batch share these members."""

    upstream: Label
    tool: Label
    arguments: dict[str, Any] = Field(default={}, description="Validated against the tool's inputSchema.")
    client_session_id: Label | None = Field(
        default=None, description="Your name for your session. The call, its events and callbacks carry it."
    )
    correlation_id: Label | None = Field(
        default=None, description="Your name for this work. The call, its events and callbacks carry it."
    )
    callback: OptionalCallback = None
    not_before: InstantWithOffset | None = Field(
        default=None,
        description=f"Start the call at this time or later, with a UTC offset; at most {START_DELAY_MAX.days} days from now. "
        "It is stored at once. If the time has passed, the call starts now.",
    )
    timeout_seconds: TimeoutSeconds = Field(
        default=TIMEOUT_SECONDS_DEFAULT, description="The call's deadline, in seconds from now, or from `not_before`."
    )
    accepts_input: StrictBool = Field(
        default=False,
        description="Whether you can answer questions of the tool (`call.input_required`). If false, the tool "
        "may not ask.",
    )
    rerun_policy: RerunPolicy = Field(
        default=RerunPolicy.NEVER,
        description="Whether the tool may run a second time after its runner died and the progress of the first "
        "run is unknown. Without this member, the configured policy of the tool applies; its default is `never`. "
        "`if_safe`: only if the tool is marked readOnlyHint or idempotentHint, and the configuration "
        "trusts the upstream's hints.",
    )

    def to_call_arguments(self) -> dict[str, Any]:
        """The arguments of a `StartCallRequest`. A policy that the client leaves out is the configured one."""
        arguments = self.to_arguments(callback=to_registration(self.callback))
        return arguments if "rerun_policy" in self.model_fields_set else arguments | {"rerun_policy": None}


class StartCallBody(CallBody):
    """A tool call to start."""

    wait_seconds: Annotated[WaitSeconds, Strict()] = Field(
        default=0.0,
        description="How long the response waits for the end of the call, in seconds; no longer than the service's maximum "
        "(45 by default). The call continues after that.",
    )

    def to_request(self, *, idempotency_key: str | None) -> StartCallRequest:
        return StartCallRequest(**self.to_call_arguments(), idempotency_key=idempotency_key)


class BatchedCallBody(CallBody):
    """One call of a batch."""

    idempotency_key: IdempotencyKey | None = Field(
        default=None, description="As the header `Idempotency-Key` of a request for one call."
    )

    def to_request(self) -> StartCallRequest:
        return StartCallRequest(**self.to_call_arguments())


class StartBatchBody(RequestBody):
    """Tool calls to start together."""

    calls: list[BatchedCallBody] = Field(min_length=1, max_length=BATCH_SIZE_MAX)


class CallListQuery(PrincipalQueryParams):
    client_session_id: Label | None = None
    correlation_id: Label | None = None
    status: CallStatus | None = None
    upstream: Label | None = None
    tool: Label | None = None
    limit: PageSize = PAGE_SIZE_DEFAULT
    cursor: Cursor | None = None

    def to_filter(self) -> CallFilter:
        return CallFilter(
            client_session_id=self.client_session_id,
            correlation_id=self.correlation_id,
            status=self.status,
            upstream=self.upstream,
            tool=self.tool,
        )


class WaitQuery(PrincipalQueryParams):
    wait_seconds: WaitSeconds = Field(
        default=0.0,
        description="How long the response waits for a change of the status, in seconds; no longer than the service's maximum "
        "(45 by default).",
    )


class JoinCallsBody(RequestBody):
    """Calls to wait for in one request."""

    call_ids: list[Id] = Field(min_length=1, max_length=JOIN_CALLS_MAX)
    mode: JoinMode = Field(
        default=JoinMode.ALL, description="Wait until `any` of the calls has ended, or `all` of them."
    )
    wait_seconds: Annotated[WaitSeconds, Strict()] = Field(
        default=0.0, description="The longest wait, in seconds; no longer than the service's maximum (45 by default)."
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
        description="The JSON-RPC error object of a failed call: the upstream's, or the service's with `data.outcome`."
    )


class CallView(ResponseBody):
    """One durable tool call."""

    id: str
    principal: OmittedIfNone[str] = Field(default=None, description=OWNER_DESCRIPTION)
    upstream: str
    tool: str
    client_session_id: str | None
    correlation_id: str | None
    status: CallStatus
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
    runs: int = Field(description="How many times the call was started at its upstream.")
    created_at: Instant
    updated_at: Instant
    dispatched_at: Instant | None = Field(description="Null while the call is scheduled or queued.")
    finished_at: Instant | None
    not_before: Instant | None = Field(
        description="When a call that starts later is queued. Null if it was queued at once."
    )
    deadline_at: Instant
    expires_at: Instant | None = Field(description="When the result is deleted and its resume tokens expire.")

    @classmethod
    def from_call(cls, call: Call, *, shows_owner: bool = False) -> Self:
        view = cls.model_validate(call)
        return view if shows_owner else view.model_copy(update={"principal": None})


class ListenerView(ResponseBody):
    """A webhook that receives a callback when the call ends."""

    id: str
    state: WebhookState
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
    hint: OmittedIfNone[str] = Field(default=None, description="What to do if no webhook receives a callback.")
    callback_secret: OmittedIfNone[str] = Field(
        default=None, description="The callback's generated signing secret. Only this response shows it."
    )
    result: OmittedIfNone[dict[str, Any]] = Field(
        default=None, description="The CallToolResult, if the call ended during `wait_seconds`."
    )

    @classmethod
    def from_started(cls, started: StartedCall, call: Call) -> Self:
        return cls(
            call_id=call.id,
            call=CallView.from_call(call),
            resume_token=started.resume_token,
            webhooks=[ListenerView.model_validate(webhook) for webhook in started.webhooks],
            hint=None if call.is_final or started.webhooks else NO_WEBHOOK_HINT,
            callback_secret=started.callback_secret,
        )


class BatchedCallView(StartedCallView):
    """One call of a batch."""

    replayed: bool = Field(description="Whether its idempotency key named a call that existed already.")

    @classmethod
    def from_batched(cls, started: StartedCall) -> Self:
        return cls(**dict(StartedCallView.from_started(started, started.call)), replayed=not started.is_new)


class StartedBatchView(ResponseBody):
    """Calls that the service has stored together. They run from now on, also after you disconnect."""

    calls: list[BatchedCallView] = Field(description="In the order of the request.")

    @classmethod
    def from_started(cls, batch: Sequence[StartedCall]) -> Self:
        return cls(calls=[BatchedCallView.from_batched(started) for started in batch])


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


class CancelCallsBody(RequestBody):
    """Which open calls are cancelled: those that match all members."""

    client_session_id: Label | None = None
    correlation_id: Label | None = None
    upstream: Label | None = None
    tool: Label | None = None
    status: Literal["working", "input_required"] | None = None
    dry_run: StrictBool = Field(default=False, description=DRY_RUN_DESCRIPTION)

    def to_filter(self) -> CallFilter:
        return CallFilter(
            client_session_id=self.client_session_id,
            correlation_id=self.correlation_id,
            upstream=self.upstream,
            tool=self.tool,
            status=CallStatus(self.status) if self.status else None,
        )


class CancelledCallsView(ResponseBody):
    cancelled: int = Field(description="The number of calls that ended at once.")
    requested: int = Field(
        description="The number of calls whose upstream gets a cancellation. Its response decides how they end."
    )
    more: bool = Field(description="Whether the request reached its limit. Send it again to continue.")

    @classmethod
    def from_cancellation(cls, cancellation: BulkCancellation) -> Self:
        return cls(cancelled=cancellation.cancelled, requested=cancellation.requested, more=cancellation.has_more)


class AnswerBody(RequestBody):
    """Answers to the questions of a call."""

    responses: dict[str, dict[str, Any]] = Field(
        min_length=1,
        max_length=INPUT_RESPONSES_MAX,
        description="ElicitResults by the keys in the call's `input_requests`: `action` is `accept` (with `content` in the "
        "requested form), `decline` or `cancel`.",
    )


class AnsweredView(ResponseBody):
    call: CallView
    accepted: list[str] = Field(description="The keys that this request answered.")
    ignored: list[str] = Field(description="The keys without an open question.")

    @classmethod
    def from_answer(cls, answered: InputAnswer) -> Self:
        return cls.model_validate(answered)
