"""What may be said beside what must be. What is left out has the service's default."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Required, TypedDict


class WebhookOptions(TypedDict, total=False):
    """What a registration may say beside its URL."""

    secret: str
    """A `whsec_…` signing secret of your own; without one the service makes one and shows it once."""
    events: Sequence[str]
    upstream: str
    resource_uri: str
    """With the event upstream.changed: hear of this resource of the upstream, instead of its lists."""
    tool: str
    call_id: str
    client_session_id: str
    correlation_id: str
    match_correlation: bool
    retries: Literal["days", "minutes"]
    include_result: bool
    when: Literal["always", "detached"]
    """`detached`: not for an end that the answer to the request which started the call has told."""
    ordered: bool
    """One callback at a time for each client_session_id (or call, where there is none), in the order of the log."""
    rate_per_second: float
    """Attempts a second at most."""
    description: str
    cursor: str
    """Hear from this place in the event log on, instead of from now."""
    expires_in_seconds: float


class CallbackOptions(TypedDict, total=False):
    """A callback given along with one call: it hears that call and nothing else, so there is nothing to filter."""

    url: Required[str]
    secret: str
    events: Sequence[str]
    correlation_id: str
    retries: Literal["days", "minutes"]
    include_result: bool
    when: Literal["always", "detached"]
    description: str


class WebhookChange(TypedDict, total=False):
    """What may be changed of a webhook."""

    url: str
    events: Sequence[str]
    description: str
    include_result: bool
    when: Literal["always", "detached"]
    retries: Literal["days", "minutes"]
    rate_per_second: float | None
    """Attempts a second at most; None removes the limit."""
    state: Literal["active", "disabled"]


class AdoptOptions(TypedDict, total=False):
    """What may be said of a task that is adopted."""

    tool: str
    """What was called: the task itself does not say."""
    client_session_id: str
    correlation_id: str
    callback: CallbackOptions
    timeout_seconds: float
    """From now on: the task is cancelled then."""


class ProgressOptions(TypedDict, total=False):
    """MCP's progress."""

    progress: Required[float]
    total: float
    message: str


class ReportOptions(TypedDict, total=False):
    """What may be told of a call that runs elsewhere. What a later report leaves out is as the first one said."""

    arguments: Mapping[str, Any]
    client_session_id: str
    correlation_id: str
    callback: CallbackOptions
    timeout_seconds: float
    """From the first report on: a call whose end was not reported by then ends as `unknown`."""
    progress: ProgressOptions
    status: Literal["working", "completed", "failed", "cancelled"]
    """Follows from the rest, but for `cancelled`."""
    result: Mapping[str, Any]
    """The CallToolResult of a call that has ended."""
    error: Mapping[str, Any]
    """The JSON-RPC error object of a call that has failed."""
