"""The other direction: what receivers are sent, for the `webhooks` section of the OpenAPI document. Nothing here is served.

`notifier/body.py` and `notifier/headers.py` make these requests; a test holds what they make against what is said here.
"""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header
from pydantic import BaseModel, ConfigDict, Field

from ringback.schemas import examples

router = APIRouter(
    tags=["callbacks"],
    responses={
        204: {"description": "Delivered, as with every 2xx; the body of your answer is not looked at."},
        410: {"description": "Final for this delivery: it is not tried again."},
        413: {"description": "Final for this delivery: it is not tried again."},
        429: {"description": "Tried again; `Retry-After` is honoured, on 503 too."},
        "default": {"description": "Tried again. Redirects are not followed."},
    },
)


class CallbackPart(BaseModel):
    """A part of a callback."""

    model_config = ConfigDict(frozen=True)


class CallbackData(CallbackPart):
    """Ids and digests. No text that an upstream controls is in here, unless the webhook asked for it."""

    call_id: str
    upstream: str
    tool: str
    correlation_id: str | None = Field(description="The call's own.")
    client_session_id: str | None
    webhook_correlation_id: str | None = Field(default=None, description="The webhook's, if it has one.")
    created_at: str
    resume_token: str | None = Field(
        default=None,
        description="Names this call. Send it to resume_url with your API key. Absent if the call expired.",
    )
    resume_url: str | None = None
    resource_uri: str | None = Field(default=None, description="The same call for MCP clients, at mcp_url.")
    mcp_url: str | None = None


class FinishedData(CallbackData):
    status: Literal["completed", "failed", "cancelled"]
    outcome: str
    finished_at: str
    answered_inline: bool | None = Field(
        default=None, description="Whether it ended while the client that started it stayed for the result."
    )
    result_bytes: int | None
    result_sha256: str | None
    result: dict[str, Any] | None = Field(
        default=None, description="The CallToolResult, if the webhook has include_result and it fits."
    )


class InputRequiredData(CallbackData):
    status: Literal["input_required"]
    input_keys: list[str] = Field(
        description="What waits for an answer. The questions themselves are the upstream's words: GET /v1/calls/{id}"
    )


class ProgressAmount(CallbackPart):
    progress: float
    total: float | None
    message: str | None = Field(description="The upstream's own words.")


class ProgressData(CallbackData):
    status: Literal["working", "input_required"]
    progress: ProgressAmount


class CallbackBase(CallbackPart):
    """An MCP EventOccurrence."""

    eventId: str = Field(description="Equal to the webhook-id header. Use it to drop what you have seen.")  # noqa: N815 - the wire's name
    timestamp: str = Field(description="When it happened.")
    cursor: str = Field(description="Everything of this webhook up to here was delivered or given up.")


class FinishedCallback(CallbackBase):
    name: Literal["call.finished"]
    data: FinishedData


class InputRequiredCallback(CallbackBase):
    name: Literal["call.input_required"]
    data: InputRequiredData


class ProgressCallback(CallbackBase):
    name: Literal["call.progress"]
    data: ProgressData


class TestData(CallbackPart):
    webhook_id: str
    client_session_id: str | None = Field(description="The webhook's.")
    webhook_correlation_id: str | None = Field(default=None, description="The webhook's, if it has one.")


class TestCallback(CallbackBase):
    name: Literal["webhook.test"]
    data: TestData


class WebhookData(CallbackPart):
    """About a webhook of yours, told to the others of yours that ask for it."""

    webhook_id: str
    last_error: str | None = Field(description="How its last attempt failed.")
    failing_since: str | None
    webhook_correlation_id: str | None = Field(default=None, description="Of the webhook that is told, if it has one.")


class SuspendedData(WebhookData):
    state: Literal["suspended"]


class RecoveredData(WebhookData):
    state: Literal["active"]


class SuspendedCallback(CallbackBase):
    name: Literal["webhook.suspended"]
    data: SuspendedData


class RecoveredCallback(CallbackBase):
    name: Literal["webhook.recovered"]
    data: RecoveredData


class UpstreamChangedData(CallbackPart):
    upstream: str
    change: Literal["tools", "resources", "prompts", "resource"]
    uri: str | None = Field(default=None, description="The resource that changed: as the webhook names it.")
    webhook_correlation_id: str | None = Field(default=None, description="The webhook's, if it has one.")


class UpstreamChangedCallback(CallbackBase):
    name: Literal["upstream.changed"]
    data: UpstreamChangedData


class GapEnvelope(CallbackPart):
    """A control envelope: no event, so it has no eventId; its `webhook-id` begins with `msg_gap_`."""

    type: Literal["gap"]
    cursor: str = Field(description="Poll GET /v1/events with it for what was given up.")


class VerificationEnvelope(CallbackPart):
    """A control envelope: no event, so it has no eventId; its `webhook-id` begins with `msg_verification_`."""

    type: Literal["verification"]
    challenge: str = Field(description="Answer with it, if its signature verifies and you want callbacks.")


class VerificationAnswer(CallbackPart):
    challenge: str = Field(description="As it came.")


class CallbackHeaders(CallbackPart):
    """Standard Webhooks' headers, and MCP's subscription id."""

    webhook_id: str = Field(alias="webhook-id", description="The same in every attempt.", examples=[examples.EVENT_ID])
    webhook_timestamp: int = Field(
        alias="webhook-timestamp", description="Of this attempt, in seconds since the epoch.", examples=[1795194006]
    )
    webhook_signature: str = Field(
        alias="webhook-signature",
        description="`v1,` and base64 of HMAC-SHA256 over id.timestamp.body; several, with spaces, during a rotation. Where "
        "the service has a signing key also `v1a,` and an Ed25519 signature of the same.",
        examples=["v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="],
    )
    subscription_id: str = Field(
        alias="x-mcp-subscription-id", description="The webhook's id.", examples=[examples.WEBHOOK_ID]
    )


CallbackHeadersParam = Annotated[CallbackHeaders, Header()]


@router.post("call.finished", operation_id="on_call_finished", status_code=204)
def call_finished(body: FinishedCallback, headers: CallbackHeadersParam) -> None:
    """A call has ended."""


@router.post("call.input_required", operation_id="on_call_input_required", status_code=204)
def call_input_required(body: InputRequiredCallback, headers: CallbackHeadersParam) -> None:
    """A call waits for an answer of yours."""


@router.post("call.progress", operation_id="on_call_progress", status_code=204)
def call_progress(body: ProgressCallback, headers: CallbackHeadersParam) -> None:
    """A call has come further. Sent only to webhooks that ask for it."""


@router.post("webhook.test", operation_id="on_webhook_test", status_code=204)
def webhook_test(body: TestCallback, headers: CallbackHeadersParam) -> None:
    """Somebody tests this webhook: POST /v1/webhooks/{id}/test. It is about no call, and in no event log."""


@router.post("webhook.suspended", operation_id="on_webhook_suspended", status_code=204)
def webhook_suspended(body: SuspendedCallback, headers: CallbackHeadersParam) -> None:
    """Another webhook of yours has not been reached for 96 hours. What is for it is held; it is tried once an hour."""


@router.post("webhook.recovered", operation_id="on_webhook_recovered", status_code=204)
def webhook_recovered(body: RecoveredCallback, headers: CallbackHeadersParam) -> None:
    """Another webhook of yours that was suspended has answered. What was held for it is on its way."""


@router.post("upstream.changed", operation_id="on_upstream_changed", status_code=204)
def upstream_changed(body: UpstreamChangedCallback, headers: CallbackHeadersParam) -> None:
    """A list of an upstream's, or a resource that the webhook names, has changed: look again.

    At most once a second for the same thing. Also sent once when a change may have been missed: after a restart, or when the
    upstream was away.
    """


@router.post("verification", operation_id="on_verification", status_code=200, response_model=VerificationAnswer)
def verification(body: VerificationEnvelope, headers: CallbackHeadersParam) -> None:
    """Before anything else, where URLs have to be proven: answer with the challenge to say that callbacks are wanted here."""


@router.post("gap", operation_id="on_gap", status_code=204)
def gap(body: GapEnvelope, headers: CallbackHeadersParam) -> None:
    """You are back, and something was given up meanwhile. Sent once an outage, and not counted against you if you refuse it."""
