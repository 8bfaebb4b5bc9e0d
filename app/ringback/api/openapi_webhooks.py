"""The callbacks that receivers get, for the `webhooks` section of the OpenAPI document. The API does not serve these routes.

`notifier/payload.py` builds these requests; a test validates them against this description.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Header
from pydantic import BaseModel, ConfigDict, Field

from ringback.domain.call_outcome import CallOutcome
from ringback.schemas import examples
from ringback.schemas.calls import CallErrorCode
from ringback.schemas.fields import OmittedIfNone

router = APIRouter(
    tags=["callbacks"],
    responses={
        204: {"description": "Delivered, like every 2xx. The body of the response is ignored."},
        410: {"description": "Final for this delivery: there is no retry."},
        413: {"description": "Final for this delivery: there is no retry."},
        429: {"description": "Retried. `Retry-After` is honoured, also with 503."},
        "default": {"description": "Retried. Redirects are not followed."},
    },
)


CONTROL_ENVELOPES: Final = frozenset({"verification", "gap"})
PUBLISHED: Final = "published"
"""The name in the document of events whose own names it cannot know."""


SubscriptionId = Annotated[
    str,
    Field(
        description="The id of the webhook that receives this callback: that of `x-mcp-subscription-id`, under the signature."
    ),
]


Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class CallbackPart(BaseModel):
    """A part of a callback."""

    model_config = ConfigDict(frozen=True)


Erased = Annotated[
    OmittedIfNone[Literal[True]],
    Field(
        description="Present if the event was erased on request. Members that came from the client or the upstream are then "
        "null, empty or absent."
    ),
]


class CallbackData(CallbackPart):
    """Ids and digests. It contains no text of an upstream, unless the webhook has `include_result`."""

    call_id: str
    upstream: str
    tool: str
    correlation_id: str | None = Field(description="The call's correlation id.")
    client_session_id: str | None
    subscription_id: SubscriptionId
    webhook_correlation_id: OmittedIfNone[str] = Field(default=None, description="The webhook's, if it has one.")
    created_at: Timestamp
    resume_token: OmittedIfNone[str] = Field(
        default=None,
        description="Names this call. Send it to `resume_url` with your API key. Absent if the call has expired.",
    )
    resume_url: OmittedIfNone[str] = None
    resource_uri: OmittedIfNone[str] = Field(
        default=None, description="The call's resource for MCP clients, at `mcp_url`."
    )
    mcp_url: OmittedIfNone[str] = None
    erased: Erased = None


class CallbackError(CallbackPart):
    """Why a call ended without a result, or that its tool returned an error. It contains no text of an upstream."""

    code: CallErrorCode
    message: str


class FinishedData(CallbackData):
    status: Literal["completed", "failed", "cancelled"]
    outcome: CallOutcome
    error: OmittedIfNone[CallbackError] = Field(
        default=None,
        description="Absent if the outcome is `result`. `code` is the outcome; GET /v1/calls/{id} has the details.",
    )
    finished_at: Timestamp
    answered_inline: OmittedIfNone[bool] = Field(
        default=None, description="Whether the call ended while the request that started it was still open."
    )
    result_bytes: int | None
    result_sha256: str | None
    result: OmittedIfNone[dict[str, Any]] = Field(
        default=None, description="The CallToolResult, if the webhook has `include_result` and the result fits."
    )


class InputRequiredData(CallbackData):
    status: Literal["input_required"]
    input_keys: list[str] = Field(
        description="The keys of the open questions. Read the questions, which are the upstream's text: GET /v1/calls/{id}"
    )
    login_url: OmittedIfNone[str] = Field(
        default=None,
        description="Where a user signs in to the upstream, if the call waits for that. It goes on by itself after the login.",
    )


class ProgressAmount(CallbackPart):
    progress: float
    total: float | None
    message: str | None = Field(description="The upstream's text.")


class ProgressData(CallbackData):
    status: Literal["working", "input_required"]
    progress: ProgressAmount


class CallbackBase(CallbackPart):
    """An MCP EventOccurrence."""

    eventId: str = Field(  # noqa: N815 - the wire's name
        description="Equal to the `webhook-id` header, unless it contains a full stop. Use it to drop duplicates."
    )
    timestamp: Timestamp = Field(description="The time of the event.")
    cursor: str = Field(description="All events of this webhook up to this cursor were delivered or given up.")


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
    subscription_id: SubscriptionId
    webhook_correlation_id: OmittedIfNone[str] = Field(default=None, description="The webhook's, if it has one.")


class TestCallback(CallbackBase):
    name: Literal["webhook.test"]
    data: TestData


class WebhookData(CallbackPart):
    """About another webhook of yours."""

    webhook_id: str
    last_error: str | None = Field(description="How its last attempt failed.")
    failing_since: Timestamp | None
    subscription_id: SubscriptionId
    webhook_correlation_id: OmittedIfNone[str] = Field(
        default=None, description="Of the webhook that receives this callback, if it has one."
    )
    erased: Erased = None


class FailingData(WebhookData):
    state: Literal["active"]
    percent: Literal[50, 70, 90] = Field(
        description="How much of the 96 hours without a success has passed. Each level is raised at most once until the "
        "webhook succeeds; levels that pass between two attempts raise one event, with the highest."
    )
    suspends_at: Timestamp = Field(
        description="The first attempt that fails from then on suspends the webhook: `webhook.suspended`."
    )
    advice: str | None = Field(description="What to do about `last_error`, in one sentence.")


class SuspendedData(WebhookData):
    state: Literal["suspended"]


class RecoveredData(WebhookData):
    state: Literal["active"]


class FailingCallback(CallbackBase):
    name: Literal["webhook.failing"]
    data: FailingData


class SuspendedCallback(CallbackBase):
    name: Literal["webhook.suspended"]
    data: SuspendedData


class RecoveredCallback(CallbackBase):
    name: Literal["webhook.recovered"]
    data: RecoveredData


class UpstreamChangedData(CallbackPart):
    upstream: str
    change: Literal["tools", "resources", "prompts", "events", "resource"]
    uri: OmittedIfNone[str] = Field(
        default=None, description="The resource that changed, as in the webhook's `resource_uri`."
    )
    subscription_id: SubscriptionId
    webhook_correlation_id: OmittedIfNone[str] = Field(default=None, description="The webhook's, if it has one.")


class UpstreamChangedCallback(CallbackBase):
    name: Literal["upstream.changed"]
    data: UpstreamChangedData


class PublishedCallback(CallbackBase):
    """An event that you publish, or one of an upstream. Its name is none of Ringback's own."""

    name: str = Field(description="The name that was published, such as `order.paid`, or `upstream/name`.")
    data: dict[str, Any] = Field(
        description="As it was published. To a webhook that was registered over REST, also `subscription_id`, and "
        "`webhook_correlation_id` if it has one. Of an erased event only these, and `erased: true`."
    )


class GapEnvelope(CallbackPart):
    """A control envelope, not an event: it has no eventId, and its `webhook-id` begins with `msg_gap_`."""

    type: Literal["gap"]
    cursor: str = Field(description="Poll GET /v1/events with it to get the events that were given up.")


class VerificationEnvelope(CallbackPart):
    """A control envelope, not an event: it has no eventId, and its `webhook-id` begins with `msg_verification_`."""

    type: Literal["verification"]
    challenge: str = Field(description="Return it in the response if the signature verifies and you accept callbacks.")


class VerificationAnswer(CallbackPart):
    challenge: str = Field(description="The challenge of the request.")


class CallbackHeaders(CallbackPart):
    """The headers of Standard Webhooks, MCP's subscription id, and the trace context of W3C."""

    webhook_id: str = Field(alias="webhook-id", description="The same in every attempt.", examples=[examples.EVENT_ID])
    webhook_timestamp: int = Field(
        alias="webhook-timestamp",
        description="The time of this attempt, in seconds since the epoch.",
        examples=[1795194006],
    )
    webhook_signature: str = Field(
        alias="webhook-signature",
        description="`v1,` and base64 of HMAC-SHA256 over `webhook-id.webhook-timestamp.body`, with the raw body. The key is "
        "what follows `whsec_` in the secret, decoded from base64. During a rotation there are several, separated by spaces: "
        "one that matches is enough. Refuse a timestamp that is more than 5 minutes off. If the service has a signing key, "
        "there is also `v1a,` and an Ed25519 signature of the same.",
        examples=["v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="],
    )
    subscription_id: str = Field(
        alias="x-mcp-subscription-id", description="The webhook's id.", examples=[examples.WEBHOOK_ID]
    )
    traceparent: str | None = Field(
        default=None,
        description="W3C Trace Context of this attempt, and with it maybe `tracestate`, if the service makes traces. It is not "
        "signed: use it for spans and for nothing else.",
        examples=["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],
    )


CallbackHeadersParam = Annotated[CallbackHeaders, Header()]


def build_callback_unions(webhooks: Mapping[str, Any]) -> dict[str, Any]:
    """Schemas of any event of Ringback's own, by its `name`, and of any control envelope, by its `type`.

    `webhooks` is that section of the OpenAPI document. Generators of types make unions of them.
    """
    references = {
        name: path["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        for name, path in webhooks.items()
    }
    envelopes = {name: reference for name, reference in references.items() if name in CONTROL_ENVELOPES}
    events = {name: found for name, found in references.items() if name not in {*CONTROL_ENVELOPES, PUBLISHED}}
    return {
        "CallbackBody": _build_union(
            "name", events, "The body of a callback that has an event of Ringback's own. Others: PublishedCallback."
        ),
        "ControlEnvelope": _build_union(
            "type", envelopes, "The body of a callback about deliveries or the URL itself."
        ),
    }


def _build_union(property_name: str, references: Mapping[str, str], description: str) -> dict[str, Any]:
    return {
        "description": description,
        "oneOf": [{"$ref": reference} for reference in references.values()],
        "discriminator": {"propertyName": property_name, "mapping": dict(references)},
    }


@router.post("call.finished", operation_id="on_call_finished", status_code=204)
def call_finished(body: FinishedCallback, headers: CallbackHeadersParam) -> None:
    """A call has ended."""


@router.post("call.input_required", operation_id="on_call_input_required", status_code=204)
def call_input_required(body: InputRequiredCallback, headers: CallbackHeadersParam) -> None:
    """A call has open questions and waits for your answers."""


@router.post("call.progress", operation_id="on_call_progress", status_code=204)
def call_progress(body: ProgressCallback, headers: CallbackHeadersParam) -> None:
    """The progress of a call. Sent only to webhooks with this event in `events`."""


@router.post("webhook.test", operation_id="on_webhook_test", status_code=204)
def webhook_test(body: TestCallback, headers: CallbackHeadersParam) -> None:
    """A test of this webhook: POST /v1/webhooks/{id}/test. It has no call and is not in the event log."""


@router.post("webhook.failing", operation_id="on_webhook_failing", status_code=204)
def webhook_failing(body: FailingCallback, headers: CallbackHeadersParam) -> None:
    """Another webhook of yours has failed for 50, 70 or 90 % of the 96 hours after which it is suspended."""


@router.post("webhook.suspended", operation_id="on_webhook_suspended", status_code=204)
def webhook_suspended(body: SuspendedCallback, headers: CallbackHeadersParam) -> None:
    """Another webhook of yours has failed for 96 hours. Its deliveries are held; one attempt per hour probes it."""


@router.post("webhook.recovered", operation_id="on_webhook_recovered", status_code=204)
def webhook_recovered(body: RecoveredCallback, headers: CallbackHeadersParam) -> None:
    """Another webhook of yours was suspended and works again. Its held deliveries are being sent."""


@router.post("upstream.changed", operation_id="on_upstream_changed", status_code=204)
def upstream_changed(body: UpstreamChangedCallback, headers: CallbackHeadersParam) -> None:
    """A list of an upstream, or the resource of the webhook, has changed: read it again.

    Sent at most once per second for each list or resource. Also sent once if a change may have been missed: after a restart, or
    after the upstream was unreachable.
    """


@router.post(PUBLISHED, operation_id="on_published_event", status_code=204)
def published_event(body: PublishedCallback, headers: CallbackHeadersParam) -> None:
    """An event that you have published, or that an upstream has. Sent only to webhooks with its name in `events`."""


@router.post("verification", operation_id="on_verification", status_code=200, response_model=VerificationAnswer)
def verification(body: VerificationEnvelope, headers: CallbackHeadersParam) -> None:
    """The first request to a URL that needs a proof: return the challenge to accept callbacks."""


@router.post("gap", operation_id="on_gap", status_code=204)
def gap(body: GapEnvelope, headers: CallbackHeadersParam) -> None:
    """Events were given up during an outage of this receiver. Sent once per outage.

    A failure of this delivery does not count as a failure of the receiver.
    """
