"""A typed client of Ringback's REST API, on httpx.

    async with RingbackClient("http://127.0.0.1:8090", api_key="rbk_…") as ringback:
        started = await ringback.start_call("git", "git_log", {"repo_path": "."}, correlation_id="c1")
        call = await ringback.wait(started.call.id, timeout_seconds=60)
        result = await ringback.result(call.id)

    client           RingbackClient: calls, upstreams, health
    webhooks         its methods about webhooks and deliveries
    events           its methods about the event log
    resource_client  the base class of these three
    http_transport   requests and responses: retries, timeouts, errors
    event_stream     server-sent events, read by httpx-sse with a limit on lines
    options          optional members of requests
    models           the returned values
    problems         the errors, one tree

The client imports only Ringback's version, and runs in processes without the service.
"""

from ringback.client.client import RingbackClient
from ringback.client.models import (
    Answered,
    Attempt,
    BatchedCall,
    Call,
    Delivery,
    DeliveryDetail,
    Event,
    EventPage,
    InputRequest,
    Listener,
    Progress,
    RegisteredWebhook,
    Reloaded,
    Replay,
    Resumed,
    RotatedWebhook,
    Started,
    Tool,
    Upstream,
    Webhook,
)
from ringback.client.options import (
    AdoptOptions,
    CallbackOptions,
    CallOptions,
    NamedWebhookOptions,
    ProgressOptions,
    ReportOptions,
    WebhookChange,
    WebhookOptions,
)
from ringback.client.problems import (
    ClientError,
    Conflict,
    ConnectionFailed,
    Forbidden,
    Gone,
    InvalidRequest,
    NotFound,
    Problem,
    QuotaExceeded,
    Unauthenticated,
    Unavailable,
    UnexpectedAnswer,
)

__all__ = [
    "AdoptOptions",
    "Answered",
    "Attempt",
    "BatchedCall",
    "Call",
    "CallOptions",
    "CallbackOptions",
    "ClientError",
    "Conflict",
    "ConnectionFailed",
    "Delivery",
    "DeliveryDetail",
    "Event",
    "EventPage",
    "Forbidden",
    "Gone",
    "InputRequest",
    "InvalidRequest",
    "Listener",
    "NamedWebhookOptions",
    "NotFound",
    "Problem",
    "Progress",
    "ProgressOptions",
    "QuotaExceeded",
    "RegisteredWebhook",
    "Reloaded",
    "Replay",
    "ReportOptions",
    "Resumed",
    "RingbackClient",
    "RotatedWebhook",
    "Started",
    "Tool",
    "Unauthenticated",
    "Unavailable",
    "UnexpectedAnswer",
    "Upstream",
    "Webhook",
    "WebhookChange",
    "WebhookOptions",
]
