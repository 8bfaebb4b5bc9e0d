"""Answers, as they are given and as they are shown."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Self

from pydantic import Field, Strict

from ringback.domain.call import Call, CallOutcome, CallStatus, InputRequest, Progress, RerunPolicy
from ringback.domain.call_rows import CallFilter
from ringback.domain.inputs import InputAnswer
from ringback.domain.webhook import Webhook, WebhookState
from ringback.schemas.fields import (
    NEXT_CURSOR_DESCRIPTION,
    PAGE_SIZE_DEFAULT,
    Cursor,
    Id,
    Instant,
    Label,
    OmittedIfNone,
    PageSize,
    QueryParams,
    RequestBody,
    ResponseBody,
    StrictBool,
    WaitSeconds,
)
from ringback.schemas.webhooks import CallbackBody
from ringback.services.calls import TIMEOUT_SECONDS_DEFAULT, TIMEOUT_SECONDS_MAX, JoinMode, StartCallRequest
from ringback.services.input_answers import INPUT_RESPONSES_MAX
from ringback.services.started_call import StartedCall

# Calls, as they are asked for and as they are shown.

NO_WEBHOOK_HINT = (
    "Nobody will be rung when this call ends. Register a webhook (POST /v1/webhooks), send a `callback` with the call, "
    "or ask: GET /v1/calls/{id}?wait_seconds=60"
)

JOIN_CALLS_MAX: Final = 100
"""Calls in one wait: a page of them."""


OptionalCallback = Annotated[
    CallbackBody | None, Field(description="Whom to ring for this call. Takes a key with the scope `webhooks`, too.")
]
TimeoutSeconds = Annotated[float, Strict(), Field(gt=0, le=TIMEOUT_SECONDS_MAX)]


class StartCallBody(RequestBody):
    """A tool call to be made."""

    upstream: Label
    tool: Label
    arguments: dict[str, Any] = Field(default={}, description="Judged against the tool's inputSchema.")
    client_session_id: Label | None = Field(
        default=None, description="Your name for your session; comes back everywhere."
    )
    correlation_id: Label | None = Field(default=None, description="Your name for this work; comes back everywhere.")
    callback: OptionalCallback = None
    wait_seconds: Annotated[WaitSeconds, Strict()] = Field(
        default=0.0, description="Wait so long for the end before answering; the call goes on in any case."
    )
    timeout_seconds: TimeoutSeconds = Field(
        default=TIMEOUT_SECONDS_DEFAULT, description="The call's deadline, from now."
    )
    accepts_input: StrictBool = Field(
        default=False,
        description="Whether you can answer questions of the tool (`call.input_required`). Without it, it is told not to ask.",
    )
    rerun_policy: RerunPolicy = Field(
        default=RerunPolicy.NEVER,
        description="Whether the tool may be run a second time when its runner died and nothing tells how far it was: "
        "`if_safe` when it says that this does no harm (readOnlyHint, idempotentHint) and its upstream is trusted to say so.",
    )

    def to_request(self, *, idempotency_key: str | None) -> StartCallRequest:
        return StartCallRequest(
            upstream=self.upstream,
            tool=self.tool,
            arguments=self.arguments,
            client_session_id=self.client_session_id,
            correlation_id=self.correlation_id,
            idempotency_key=idempotency_key,
            callback=self.callback.to_registration() if self.callback else None,
            wait_seconds=self.wait_seconds,
            timeout_seconds=self.timeout_seconds,
            accepts_input=self.accepts_input,
            rerun_policy=self.rerun_policy,
        )


class CallListQuery(QueryParams):
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


class WaitQuery(QueryParams):
    wait_seconds: WaitSeconds = Field(default=0.0, description="Wait so long for a change of the status.")


class JoinCallsBody(RequestBody):
    """Calls to wait for together."""

    call_ids: list[Id] = Field(min_length=1, max_length=JOIN_CALLS_MAX)
    mode: JoinMode = Field(default=JoinMode.ALL, description="Wait until `any` of them has ended, or `all`.")
    wait_seconds: Annotated[WaitSeconds, Strict()] = Field(default=0.0, description="Wait so long at most.")


class ProgressView(ResponseBody):
    progress: float
    total: float | None
    message: str | None

    @classmethod
    def from_progress(cls, progress: Progress) -> Self:
        return cls(progress=progress.progress, total=progress.total, message=progress.message)


class InputRequestView(ResponseBody):
    """A question of the tool: an MCP request, to be answered with an ElicitResult."""

    method: str
    params: dict[str, Any]

    @classmethod
    def from_input_request(cls, request: InputRequest) -> Self:
        return cls(method=request.method, params=dict(request.params))


class CallView(ResponseBody):
    """One durable tool call."""

    id: str
    upstream: str
    tool: str
    client_session_id: str | None
    correlation_id: str | None
    status: CallStatus
    outcome: CallOutcome | None = Field(description="Why it ended, truthfully; `unknown` means that it may have run.")
    progress: ProgressView | None
    error: dict[str, Any] | None = Field(description="The JSON-RPC error object of a failed call.")
    result_bytes: int | None
    result_sha256: str | None
    accepts_input: bool
    input_requests: dict[str, InputRequestView] = Field(
        description="What the tool wants to know now. Answer it: POST /v1/calls/{id}/input"
    )
    rerun_policy: RerunPolicy
    cancel_requested: bool = Field(description="It was asked to stop; the upstream tells by itself how it ended.")
    runs: int = Field(description="How often it was begun at its upstream.")
    created_at: Instant
    updated_at: Instant
    dispatched_at: Instant | None = Field(description="Null while the call is queued.")
    finished_at: Instant | None
    deadline_at: Instant
    expires_at: Instant | None = Field(description="When the result and its resume tokens go, together.")

    @classmethod
    def from_call(cls, call: Call) -> Self:
        return cls(
            id=call.id,
            upstream=call.upstream,
            tool=call.tool,
            client_session_id=call.client_session_id,
            correlation_id=call.correlation_id,
            status=call.status,
            outcome=call.outcome,
            progress=ProgressView.from_progress(call.progress) if call.progress else None,
            error=call.error,
            result_bytes=call.result_bytes,
            result_sha256=call.result_sha256,
            accepts_input=call.accepts_input,
            input_requests={
                key: InputRequestView.from_input_request(request) for key, request in call.input_requests.items()
            },
            rerun_policy=call.rerun_policy,
            cancel_requested=call.cancel_requested,
            runs=call.runs,
            created_at=call.created_at,
            updated_at=call.updated_at,
            dispatched_at=call.dispatched_at,
            finished_at=call.finished_at,
            deadline_at=call.deadline_at,
            expires_at=call.expires_at,
        )


class ListenerView(ResponseBody):
    """A webhook that will be rung when the call ends."""

    id: str
    state: WebhookState
    url: str

    @classmethod
    def from_webhook(cls, webhook: Webhook) -> Self:
        return cls(id=webhook.id, state=webhook.state, url=webhook.url)


class StartedCallView(ResponseBody):
    """A call that was taken on: it runs from now on, whatever becomes of you."""

    call: CallView
    resume_token: str
    webhooks: list[ListenerView] = Field(description="Who will be rung.")
    hint: OmittedIfNone[str] = Field(default=None, description="What to do, when nobody will be rung.")
    callback_secret: OmittedIfNone[str] = Field(
        default=None, description="The callback's generated signing secret, shown this once."
    )
    result: OmittedIfNone[dict[str, Any]] = Field(
        default=None, description="The CallToolResult, if the call ended while you waited."
    )

    @classmethod
    def from_started(cls, started: StartedCall, call: Call) -> Self:
        return cls(
            call=CallView.from_call(call),
            resume_token=started.resume_token,
            webhooks=[ListenerView.from_webhook(webhook) for webhook in started.webhooks],
            hint=None if call.is_final or started.webhooks else NO_WEBHOOK_HINT,
            callback_secret=started.callback_secret,
        )


class JoinedCallsView(ResponseBody):
    calls: list[CallView] = Field(description="In the order asked for.")
    done: bool = Field(description="Whether any or all of them have ended, whichever was asked for.")

    @classmethod
    def from_calls(cls, calls: Sequence[Call], *, done: bool) -> Self:
        return cls(calls=[CallView.from_call(call) for call in calls], done=done)


class CallPageView(ResponseBody):
    calls: list[CallView]
    next_cursor: str | None = Field(description=NEXT_CURSOR_DESCRIPTION)

    @classmethod
    def from_calls(cls, calls: Sequence[Call], next_cursor: str | None) -> Self:
        return cls(calls=[CallView.from_call(call) for call in calls], next_cursor=next_cursor)


class AnswerBody(RequestBody):
    """Answers to what a call asks."""

    responses: dict[str, dict[str, Any]] = Field(
        min_length=1,
        max_length=INPUT_RESPONSES_MAX,
        description="ElicitResults by the keys in the call's `input_requests`: `action` is `accept` (with `content` in the "
        "form that was asked for), `decline` or `cancel`.",
    )


class AnsweredView(ResponseBody):
    call: CallView
    accepted: list[str] = Field(description="The keys that were answered by this.")
    ignored: list[str] = Field(description="The keys that are not asked, or not any more.")

    @classmethod
    def from_answer(cls, answered: InputAnswer) -> Self:
        return cls(
            call=CallView.from_call(answered.call), accepted=list(answered.accepted), ignored=list(answered.ignored)
        )
