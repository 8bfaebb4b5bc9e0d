"""Optional members of requests. Omitted members have the service's defaults."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Required, TypedDict


class OwnRetries(TypedDict):
    """A retry schedule of your own."""

    schedule: Sequence[int]
    """Seconds until each further attempt: 1 to 20 steps of 1 to 86,400 s, at most 4 days together."""


class NamedWebhookOptions(TypedDict, total=False):
    """Optional members of a registration under a name."""

    secret: str
    """Your own signing secret, `whsec_…`. Without it the service generates one and shows it once."""
    events: Sequence[str]
    outcomes: Sequence[str]
    """Receive call.finished only for calls with these outcomes. Without `events`, it is then the only event."""
    upstream: str
    resource_uri: str
    """With the event upstream.changed: receive changes of this resource of the upstream, instead of changes of its lists."""
    tool: str
    client_session_id: str
    correlation_id: str
    match_correlation: bool
    retries: Literal["days", "minutes"] | OwnRetries
    include_result: bool
    when: Literal["always", "detached"]
    """`detached`: no callback for an end that the response to the starting request contained."""
    ordered: bool
    """One callback at a time for each client_session_id (for each call without one), in the order of the log."""
    rate_per_second: float
    """Largest number of attempts a second."""
    description: str
    headers: Mapping[str, str]
    """Headers that every callback has. put_webhook keeps the headers of an existing webhook without them; {} removes them."""
    cursor: str
    """Receive events after this cursor, instead of from now on."""
    expires_in_seconds: float


class WebhookOptions(NamedWebhookOptions, total=False):
    """Optional members of a registration."""

    call_id: str
    """Receive the events of this call, from its beginning."""


class CallbackOptions(TypedDict, total=False):
    """The callback of one call. It receives this call's events only, so it has no filters."""

    url: Required[str]
    secret: str
    events: Sequence[str]
    outcomes: Sequence[str]
    """Receive call.finished only if the call ends with one of these outcomes."""
    correlation_id: str
    retries: Literal["days", "minutes"] | OwnRetries
    include_result: bool
    when: Literal["always", "detached"]
    description: str


class WebhookChange(TypedDict, total=False):
    """The changeable members of a webhook."""

    url: str
    events: Sequence[str]
    outcomes: Sequence[str] | None
    """Receive call.finished only for these outcomes; None removes the filter."""
    description: str
    include_result: bool
    when: Literal["always", "detached"]
    retries: Literal["days", "minutes"] | OwnRetries
    rate_per_second: float | None
    """Largest number of attempts a second; None removes the limit."""
    headers: Mapping[str, str]
    """All headers of its callbacks; {} removes them."""
    state: Literal["active", "disabled"]
    """"disabled": no event matches the webhook, and its open deliveries are held until it is "active"."""
    paused: bool
    """True holds deliveries, those of new events, too, until you send False."""


class RedeliveryOptions(TypedDict, total=False):
    """Which ended deliveries are sent again: those that match all members."""

    state: Literal["dead", "cancelled", "delivered"]
    """Default: dead."""
    webhook_id: str
    call_id: str
    category: str
    """How the last attempt ended, for example `http_5xx`."""
    client_session_id: str
    correlation_id: str
    since: str
    """Created at this time or later: ISO 8601 with a UTC offset."""
    until: str
    """Created before this time: ISO 8601 with a UTC offset."""
    cursor: str
    """Continue after `Redelivery.cursor`."""
    dry_run: bool
    """Count the deliveries and change nothing."""


class EventOptions(TypedDict, total=False):
    """Optional members of an event that you publish."""

    id: str
    """Your own id of the event, the same in every repeat: the same id again changes nothing."""
    timestamp: str
    """When it happened: ISO 8601 with a UTC offset. Default: now."""
    upstream: str
    """The MCP server that the event is about."""
    client_session_id: str
    correlation_id: str


class NewEvent(EventOptions, total=False):
    """An event that you publish."""

    name: Required[str]
    """Lower-case words with dots: order.paid."""
    data: Required[Mapping[str, Any]]


class CallOptions(TypedDict, total=False):
    """One call of a batch."""

    upstream: Required[str]
    tool: Required[str]
    arguments: Mapping[str, Any]
    client_session_id: str
    correlation_id: str
    callback: CallbackOptions
    not_before: datetime | str
    """Start at this time or later: with a UTC offset, as text in ISO 8601."""
    timeout_seconds: float
    accepts_input: bool
    rerun_policy: Literal["never", "if_safe", "always"]
    idempotency_key: str
    """Without it, the client makes one, which covers the repeats of one method call."""


class AdoptOptions(TypedDict, total=False):
    """Optional members of an adoption."""

    tool: str
    """The called tool, which the task does not name."""
    client_session_id: str
    correlation_id: str
    callback: CallbackOptions
    timeout_seconds: float
    """From now until the task is cancelled."""


class ProgressOptions(TypedDict, total=False):
    """MCP's progress."""

    progress: Required[float]
    total: float
    message: str


class ReportOptions(TypedDict, total=False):
    """Optional members of a report. A member that a later report omits keeps its first value."""

    arguments: Mapping[str, Any]
    client_session_id: str
    correlation_id: str
    callback: CallbackOptions
    timeout_seconds: float
    """From the first report until the call ends as `unknown` if no report has ended it."""
    progress: ProgressOptions
    status: Literal["working", "completed", "failed", "cancelled"]
    """Derived from the other members, except `cancelled`."""
    result: Mapping[str, Any]
    """The CallToolResult of a completed call."""
    error: Mapping[str, Any]
    """The JSON-RPC error object of a failed call."""
