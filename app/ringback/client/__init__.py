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
    durable          DurableCaller: calls that outlive the process that requested them; imported with its first use

The client imports only Ringback's version, and runs in processes without the service.
"""

import typing

from ringback.client.client import RingbackClient
from ringback.client.models import (
    Answered,
    Attempt,
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

if typing.TYPE_CHECKING:
    from ringback.client.durable import (
        CallHandle,
        DurableCaller,
        MemoryRequestState,
        RedisRequestState,
        RequestStateManager,
        SQLiteRequestState,
    )

__all__ = [
    "AdoptOptions",
    "Answered",
    "Attempt",
    "Call",
    "CallHandle",
    "CallbackOptions",
    "ClientError",
    "Conflict",
    "ConnectionFailed",
    "Delivery",
    "DeliveryDetail",
    "DurableCaller",
    "Event",
    "EventPage",
    "Forbidden",
    "Gone",
    "InputRequest",
    "InvalidRequest",
    "Listener",
    "MemoryRequestState",
    "NotFound",
    "Problem",
    "Progress",
    "ProgressOptions",
    "QuotaExceeded",
    "RedisRequestState",
    "RegisteredWebhook",
    "Reloaded",
    "Replay",
    "ReportOptions",
    "RequestStateManager",
    "Resumed",
    "RingbackClient",
    "RotatedWebhook",
    "SQLiteRequestState",
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

_DURABLE: typing.Final = frozenset(
    {
        "CallHandle",
        "DurableCaller",
        "MemoryRequestState",
        "RedisRequestState",
        "RequestStateManager",
        "SQLiteRequestState",
    }
)


def __getattr__(name: str) -> typing.Any:
    """Import the durable caller with its first use: most processes of the client never do."""
    if name not in _DURABLE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ringback.client import durable  # noqa: PLC0415 - see above

    return getattr(durable, name)
