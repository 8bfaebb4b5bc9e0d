"""A typed client of Ringback's REST API, on httpx.

    async with RingbackClient("http://127.0.0.1:8090", api_key="rbk_…") as ringback:
        started = await ringback.start_call("git", "git_log", {"repo_path": "."}, correlation_id="c1")
        call = await ringback.wait(started.call.id, timeout_seconds=60)
        result = await ringback.result(call.id)

    client    the methods, in the order of a call's life
    wire      requests and answers: what is repeated, how long is waited, which error is raised
    options   what may be said beside the URL of a webhook
    models    the values that come back
    problems  the errors, one tree

Imports nothing of Ringback but its version, and works in a process that has nothing to do with the service.
"""

from ringback.client.client import RingbackClient
from ringback.client.models import (
    Attempt,
    Call,
    Delivery,
    DeliveryDetail,
    Event,
    EventPage,
    Listener,
    Progress,
    RegisteredWebhook,
    Resumed,
    Started,
    Tool,
    Upstream,
    Webhook,
)
from ringback.client.options import CallbackOptions, WebhookChange, WebhookOptions
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
    "Attempt",
    "Call",
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
    "InvalidRequest",
    "Listener",
    "NotFound",
    "Problem",
    "Progress",
    "QuotaExceeded",
    "RegisteredWebhook",
    "Resumed",
    "RingbackClient",
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
