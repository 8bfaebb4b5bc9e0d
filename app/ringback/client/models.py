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


LOGIN_REQUEST_KEY: Final = "ringback/login"
"""The key of a request to sign in to the upstream. It needs no answer: the call goes on by itself after the login."""


class InputRequest(ClientModel):
    """A tool's request for input: an MCP request, answered with an ElicitResult."""

    method: str
    params: Mapping[str, Any] = Field(repr=False)


class Call(ClientModel):
    """One durable tool call."""

    id: str
    principal: OwnerName = None
    """The owner, for an operator (`RingbackClient(principal=…)`); else None."""
    upstream: str
    tool: str
    status: str
    """working | input_required | completed | failed | cancelled"""
    outcome: str | None = None
    """How it ended: result | tool_error | upstream_error | rejected | timed_out | unknown | cancelled"""
    client_session_id: str | None = None
    correlation_id: str | None = None
    progress: Progress | None = None
    error: Mapping[str, Any] | None = Field(default=None, repr=False)
    """Why it ended without a result, or that its tool returned an error: `code` (the outcome), `message`, and `jsonrpc`, the
    JSON-RPC error object of a failed call."""
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
    """The inline callback's signing secret if the service generated it. It is not shown again."""
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


class Webhook(ClientModel):
    """A registered callback URL."""

    id: str
    principal: OwnerName = None
    """The owner, for an operator (`RingbackClient(principal=…)`); else None."""
    name: str | None = None
    """Your name for it (`RingbackClient.put_webhook`)."""
    url: str
    state: str
    """active | pending_verification | suspended | disabled"""
    paused_at: datetime | None = None
    """When you paused it: its deliveries are held until you resume it."""
    events: tuple[str, ...] = ()
    outcomes: tuple[str, ...] | None = None
    """It receives call.finished only for these outcomes; None means all."""
    upstream: str | None = None
    resource_uri: str | None = None
    """With upstream.changed: the resource whose changes it receives."""
    tool: str | None = None
    call_id: str | None = None
    client_session_id: str | None = None
    correlation_id: str | None = None
    match_correlation: bool = False
    retries: str | Mapping[str, Any] | None = None
    """days | minutes | {"schedule": [seconds, …]}"""
    include_result: bool = False
    when: str = "always"
    """always | detached"""
    ordered: bool = False
    rate_per_second: float | None = None
    description: str | None = None
    header_names: tuple[str, ...] = ()
    """The names of the headers that its callbacks have. The values are never shown."""
    origin: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    expires_at: datetime | None = None
    last_delivery_at: datetime | None = None
    last_error: str | None = None
    """The category in which the last attempt failed; None after a success."""
    last_error_detail: str | None = None
    """The status code, and a fact such as where a redirect leads."""
    last_error_advice: str | None = None
    """What to do next about the last error."""
    failing_since: datetime | None = None
    paused_until: datetime | None = None
    """After several consecutive failures, nothing is sent until then."""


class OpenDeliveries(ClientModel):
    """What happens with the open deliveries of a webhook, and when."""

    due_now: int = 0
    """If the receiver failed last, one of them is sent first, and the others follow its success."""
    held: int = 0
    """They wait until the webhook is active and not paused."""
    in_flight: int = 0
    next_attempt_at: datetime | None = None
    """The earliest time of the next attempt; None if none is scheduled."""


class ChangedWebhook(Webhook, OpenDeliveries):
    """A webhook, and what happens with its open deliveries now."""


class RegisteredWebhook(Webhook):
    """A new webhook, with its secret."""

    hears: str = ""
    """One sentence that describes the events it receives."""
    secret: str | None = Field(default=None, repr=False)
    """The signing secret if the service generated it, else None. It is not shown again."""


class RotatedWebhook(ChangedWebhook):
    """A webhook with a new signing secret."""

    overlap_ends_at: datetime
    """Until then earlier secrets sign callbacks, too."""
    secret: str | None = Field(default=None, repr=False)
    """The new secret if the service generated it. It is not shown again."""


class Replay(OpenDeliveries):
    """The outcome of a replay."""

    replayed: int
    still_open: int = 0
    """Deliveries that are still open, and were not replayed: they are due now."""
    more: bool = False
    """Whether the limit of one request was reached."""
    cursor: str | None = None
    """Replay from it to continue; None if repeating the request continues."""


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


class Attempt(ClientModel):
    """One POST of a delivery."""

    id: str
    number: int
    started_at: datetime
    duration_ms: int
    category: str
    status_code: int | None = None
    excerpt: str | None = Field(default=None, repr=False)
    detail: str | None = Field(default=None, repr=False)
    """A fact beside the category: where a redirect leads, why a certificate is invalid."""
    advice: str | None = None
    """What to do next; None for a delivered attempt."""


class Delivery(ClientModel):
    """One event for one webhook."""

    id: str
    principal: OwnerName = None
    """The owner, for an operator (`RingbackClient(principal=…)`); else None."""
    webhook_id: str
    event_id: str | None = None
    """None for a gap envelope."""
    message_id: str | None = None
    """The `webhook-id` of every attempt."""
    call_id: str | None = None
    """None if the event belongs to no call."""
    kind: str = "event"
    """event | progress | gap"""
    state: str
    """held | pending | leased | delivered | dead | cancelled"""
    generation: int = 1
    """Increased by a replay, which sends the same body again."""
    attempt_count: int = 0
    last_category: str | None = None
    due_at: datetime | None = None
    give_up_at: datetime | None = None
    created_at: datetime | None = None
    finished_at: datetime | None = None


class DeliveryDetail(Delivery):
    """A delivery with its attempts."""

    attempts: tuple[Attempt, ...] = ()


class CallResume(ClientModel):
    """When the client of a call came back for it."""

    resumed_at: datetime
    surface: str
    """rest_resume | rest_result | mcp_task | mcp_resource | tool"""
    resumes: int = 1
    """How many there were within about a second. The last of 20 also counts all later ones."""


class CallHistory(ClientModel):
    """What happened to a call, from its start to the return of its client."""

    call: Call
    events: tuple[Event, ...] = ()
    """The latest ones, oldest first."""
    deliveries: tuple[DeliveryDetail, ...] = ()
    """The latest ones, oldest first."""
    resumes: tuple[CallResume, ...] = ()
    """Oldest first."""
    resume_count: int = 0
    truncated: bool = False
    """Whether the call has more events or deliveries than these."""


class ListPage(ClientModel):
    next_cursor: str | None = None
    """The cursor of the next page; None on the last."""


class CallPage(ListPage):
    calls: tuple[Call, ...]


class WebhookPage(ListPage):
    webhooks: tuple[Webhook, ...]


class RequestedDelivery(Delivery, OpenDeliveries):
    """A test or a redelivery, and what happens with the open deliveries of its webhook now."""


class Redelivery(OpenDeliveries):
    """The outcome of a redelivery by filter. The numbers of open deliveries are those of all its webhooks together."""

    redelivered: int
    skipped: int = 0
    """Matching deliveries whose webhook is disabled or removed, or that were sent again meanwhile."""
    webhooks: int = 0
    cursor: str | None = None
    """Continue from it; None at the end."""


class DeliveryPage(ListPage):
    deliveries: tuple[Delivery, ...]
