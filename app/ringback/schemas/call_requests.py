"""Requests for calls: to start, list, join, cancel and answer them. `calls` has the responses."""

from typing import Annotated, Any, Final, Literal

from pydantic import FailFast, Field, Strict

from ringback.domain.call import CallStatus, RerunPolicy
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.call_rows import CallFilter
from ringback.schemas.fields import (
    CALL_ID_PREFIX,
    DRY_RUN_DESCRIPTION,
    PAGE_SIZE_DEFAULT,
    Cursor,
    Id,
    IdempotencyKey,
    InstantWithOffset,
    Label,
    PageSize,
    PrincipalQueryParams,
    RequestBody,
    StrictBool,
    WaitSeconds,
    limit_size,
)
from ringback.schemas.webhook_requests import CallCallbackBody
from ringback.services.calls.call_starts import BATCH_SIZE_MAX, START_DELAY_MAX, StartCallRequest
from ringback.services.calls.calls import JoinMode
from ringback.services.calls.input_answers import INPUT_RESPONSES_MAX
from ringback.services.calls.new_calls import TIMEOUT_SECONDS_DEFAULT, TIMEOUT_SECONDS_MAX
from ringback.services.webhooks.registrations import WebhookRegistration

JOIN_CALLS_MAX: Final = 100
"""Calls in one wait: as many as on one page."""
REPEATS_FILTER_MAX: Final = 1_000_000
"""More runs or attempts than a call or a delivery can have."""


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
        "It is stored at once. If the time has passed, the call starts now. A repetition with the same idempotency key does "
        "not change the time: cancel the call and start it with another key.",
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
        description="Whether the tool may run again after its runner died and the progress of the earlier run is unknown. A "
        "call whose runner dies in its fifth run ends as `unknown`. Without this member, the configured policy of the tool "
        "applies; its default is `never`. `if_safe`: only if the tool is marked readOnlyHint or idempotentHint, and the "
        "configuration trusts the upstream's hints.",
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

    calls: Annotated[list[BatchedCallBody], FailFast()] = Field(min_length=1, max_length=BATCH_SIZE_MAX)


class CallListQuery(PrincipalQueryParams):
    client_session_id: Label | None = None
    correlation_id: Label | None = None
    status: CallStatus | None = None
    upstream: Label | None = None
    tool: Label | None = None
    started: bool | None = Field(
        default=None,
        description="`true`: calls that were sent to their upstream (`dispatched_at` is set). `false`: calls that were not. "
        "With `status=working`, `false` finds the calls that wait to start.",
    )
    outcome: list[CallOutcome] = Field(
        default_factory=list[CallOutcome],
        max_length=len(CallOutcome),
        description="Calls that ended with one of these outcomes. Repeat the parameter for several.",
    )
    since: InstantWithOffset | None = Field(default=None, description="Calls that were created at this time or later.")
    until: InstantWithOffset | None = Field(default=None, description="Calls that were created before this time.")
    id_prefix: Annotated[
        str | None, Field(pattern=CALL_ID_PREFIX, description="The beginning of the id, such as `call_01KAGZ`.")
    ] = None
    min_runs: Annotated[int, Field(ge=1, le=REPEATS_FILTER_MAX)] | None = Field(
        default=None,
        description="Calls that were sent to their upstream at least this often; `2`: calls that ran more than once.",
    )
    min_delivery_attempts: Annotated[int, Field(ge=2, le=REPEATS_FILTER_MAX)] | None = Field(
        default=None,
        description="Calls of which one delivery has had at least this many attempts; `2`: calls with a retried callback.",
    )
    limit: PageSize = PAGE_SIZE_DEFAULT
    cursor: Cursor | None = None

    def to_filter(self) -> CallFilter:
        return CallFilter(
            client_session_id=self.client_session_id,
            correlation_id=self.correlation_id,
            status=self.status,
            upstream=self.upstream,
            tool=self.tool,
            started=self.started,
            outcomes=frozenset(self.outcome) if self.outcome else None,
            since=self.since,
            until=self.until,
            id_prefix=self.id_prefix,
            min_runs=self.min_runs or 0,
            min_delivery_attempts=self.min_delivery_attempts or 0,
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


class AnswerBody(RequestBody):
    """Answers to the questions of a call."""

    responses: Annotated[dict[str, dict[str, Any]], limit_size(INPUT_RESPONSES_MAX)] = Field(
        min_length=1,
        max_length=INPUT_RESPONSES_MAX,
        description="ElicitResults by the keys in the call's `input_requests`: `action` is `accept` (with `content` in the "
        "requested form), `decline` or `cancel`.",
    )
