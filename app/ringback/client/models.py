"""What the REST API answers, as frozen values.

Tolerant on purpose: members that this version does not know are ignored, statuses and states stay strings, and what an older
or newer service may leave out has a default. So a client goes on working when the service learns something new.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

FINAL_STATUSES: Final = frozenset({"completed", "failed", "cancelled"})
"""MCP's final statuses: nothing follows them."""


class ClientModel(BaseModel):
    # A model is built when it is first used: building all of them took half of the import time.
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, defer_build=True)


class Progress(ClientModel):
    """The last progress that the upstream told."""

    progress: float
    total: float | None = None
    message: str | None = None


class InputRequest(ClientModel):
    """A question of the tool: an MCP request, to be answered with an ElicitResult."""

    method: str
    params: Mapping[str, Any] = Field(repr=False)


class Call(ClientModel):
    """One durable tool call."""

    id: str
    upstream: str
    tool: str
    status: str
    """working | input_required | completed | failed | cancelled"""
    outcome: str | None = None
    """Why it ended: result | tool_error | upstream_error | rejected | timed_out | unknown | cancelled"""
    client_session_id: str | None = None
    correlation_id: str | None = None
    progress: Progress | None = None
    error: Mapping[str, Any] | None = Field(default=None, repr=False)
    """The JSON-RPC error object of a failed call."""
    result_bytes: int | None = None
    result_sha256: str | None = None
    accepts_input: bool = False
    input_requests: Mapping[str, InputRequest] = {}
    """What the tool wants to know now: `RingbackClient.answer`."""
    rerun_policy: str | None = None
    """never | if_safe | always"""
    cancel_requested: bool = False
    runs: int = 0
    """How often it was begun at its upstream."""
    dispatched_at: datetime | None = None
    """None while the call is queued."""
    created_at: datetime
    updated_at: datetime | None = None
    finished_at: datetime | None = None
    deadline_at: datetime | None = None
    expires_at: datetime | None = None
    """When the result and its resume tokens go, together."""

    @property
    def final(self) -> bool:
        return self.status in FINAL_STATUSES


class Answered(ClientModel):
    """What came of answering a call's questions."""

    call: Call
    accepted: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    """Keys that are not asked, or not any more."""


class Listener(ClientModel):
    """A webhook that will be rung when the call ends."""

    id: str
    state: str
    url: str


class Started(ClientModel):
    """The answer to starting a call."""

    call: Call
    resume_token: str = Field(repr=False)
    webhooks: tuple[Listener, ...] = ()
    callback_secret: str | None = Field(default=None, repr=False)
    """The inline callback's signing secret if the service made it; shown this once."""
    hint: str | None = None
    result: Mapping[str, Any] | None = Field(default=None, repr=False)
    """The CallToolResult, when the call ended within the wait."""


class Webhook(ClientModel):
    """A registration of a callback URL."""

    id: str
    url: str
    state: str
    """active | pending_verification | suspended | disabled"""
    events: tuple[str, ...] = ()
    upstream: str | None = None
    resource_uri: str | None = None
    """With upstream.changed: the resource that it hears of."""
    tool: str | None = None
    call_id: str | None = None
    client_session_id: str | None = None
    correlation_id: str | None = None
    match_correlation: bool = False
    retries: str | None = None
    include_result: bool = False
    when: str = "always"
    """always | detached"""
    ordered: bool = False
    rate_per_second: float | None = None
    description: str | None = None
    origin: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    expires_at: datetime | None = None
    last_delivery_at: datetime | None = None
    last_error: str | None = None
    """How the last attempt failed, until one succeeds."""
    failing_since: datetime | None = None
    paused_until: datetime | None = None
    """After several failures in a row nothing is sent until then."""


class RegisteredWebhook(Webhook):
    """A webhook just made, with what is shown this once."""

    hears: str = ""
    """One sentence that says what will ring."""
    secret: str | None = Field(default=None, repr=False)
    """The signing secret if the service made it; None when the registration brought its own."""


class RotatedWebhook(Webhook):
    """A webhook with a new signing secret."""

    overlap_ends_at: datetime
    """Until then callbacks carry signatures of older secrets, too."""
    secret: str | None = Field(default=None, repr=False)
    """The new secret if the service made it; shown this once."""


class Replay(ClientModel):
    """How much of a webhook's past is sent again."""

    replayed: int
    still_open: int = 0
    """Left alone, because they are being delivered anyway."""
    more: bool = False
    """Whether the bound of one request was reached."""
    cursor: str | None = None
    """Replay from it to go on; None where asking again goes on by itself."""


class Event(ClientModel):
    """Something that happened to a call."""

    event_id: str = Field(alias="eventId")
    name: str
    timestamp: datetime
    cursor: str | None = None
    """Read on from here: everything up to this event has been seen."""
    data: Mapping[str, Any] = Field(repr=False)


class EventPage(ClientModel):
    events: tuple[Event, ...]
    cursor: str
    """Poll with it to get what comes after this page."""
    truncated: bool = False
    """Whether events after the cursor asked with are not here: removed by retention, or lost when a backup was restored."""
    has_more: bool = False


class Resumed(ClientModel):
    """Where a call stands, for whoever held its resume token."""

    call: Call
    result: Mapping[str, Any] | None = Field(default=None, repr=False)
    """The CallToolResult, once there is one."""
    events: tuple[Event, ...] = ()
    """This call's events since the token was made."""
    truncated: bool = False
    """Whether the token is of an event log that was lost when a backup was restored. Then these are all its events."""
    resume_token: str = Field(repr=False)
    """A fresh token, standing after these events."""


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


class Delivery(ClientModel):
    """One event for one webhook."""

    id: str
    webhook_id: str
    event_id: str | None = None
    """None for the envelope that tells of a gap."""
    message_id: str | None = None
    """The `webhook-id` of every attempt."""
    call_id: str | None = None
    """None for what is about no call."""
    kind: str = "event"
    """event | progress | gap"""
    state: str
    """held | pending | leased | delivered | dead | cancelled"""
    generation: int = 1
    """Raised by a replay: the same body once more."""
    attempt_count: int = 0
    last_category: str | None = None
    due_at: datetime | None = None
    give_up_at: datetime | None = None
    created_at: datetime | None = None
    finished_at: datetime | None = None


class DeliveryDetail(Delivery):
    """A delivery with everything that was tried."""

    attempts: tuple[Attempt, ...] = ()


class Upstream(ClientModel):
    """An MCP server behind the service, and how it is doing."""

    name: str
    transport: str
    state: str
    """idle | connecting | ready | unresponsive | failing"""
    protocol_version: str | None = None
    driver: str | None = None
    """How a call that begins now is carried: task | mrtr | legacy_task | stream | plain; None while it is not connected."""
    last_error: str | None = None
    advice: str | None = None
    """What to do about the last error."""
    calls_in_flight: int = 0
    max_concurrent: int = 0
    isolation: str = "shared"
    """Who shares a session with it: shared (all calls) | principal | call"""
    faults: Mapping[str, int] = Field(default_factory=dict[str, int])
    """What it sent that it should not, since the service started: how often, by kind."""


class Reloaded(ClientModel):
    """What reading the upstreams' configuration again has changed: names, sorted."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]


class Tool(ClientModel):
    """A tool as its upstream lists it."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: Mapping[str, Any] = Field(default_factory=dict[str, Any], alias="inputSchema", repr=False)
    output_schema: Mapping[str, Any] | None = Field(default=None, alias="outputSchema", repr=False)


class ListPage(ClientModel):
    next_cursor: str | None = None
    """Where the next page begins; None after the last."""


class CallPage(ListPage):
    calls: tuple[Call, ...]


class WebhookPage(ListPage):
    webhooks: tuple[Webhook, ...]


class DeliveryPage(ListPage):
    deliveries: tuple[Delivery, ...]


class UpstreamList(ClientModel):
    upstreams: tuple[Upstream, ...]


class ToolList(ClientModel):
    tools: tuple[Tool, ...]
