"""A typed client of Ringback's REST API, on httpx.

    async with RingbackClient("http://127.0.0.1:8090", api_key="rbk_…") as ringback:
        started = await ringback.start_call("git", "git_log", {"repo_path": "."}, correlation_id="c1")
        call = await ringback.wait(started.call.id, timeout_seconds=60)
        result = await ringback.result(call.id)

    client              RingbackClient: calls and upstreams
    results             its methods about stored results
    webhooks            … webhooks and deliveries
    events              … the event log
    operations          … health, metrics, public keys
    resource_client     the base class of these groups of methods
    event_stream        EventStream: the event log over one connection, reconnected by cursor
    server_sent_events  … the frames of one response, read by httpx-sse with limits
    http_transport      requests and responses: retries, timeouts, errors
    options             optional members of requests
    models              the returned values
    service_models      … about results and the service itself
    problems            the errors, one tree
    sync                SyncRingbackClient: the same methods without `await`, generated from RingbackClient

The client imports only Ringback's version, and runs in processes without the service.
"""

from ringback.client.client import RingbackClient
from ringback.client.event_stream import EventStream
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
from ringback.client.service_models import ProblemType, PublicKey, Readiness, ResultInfo
from ringback.client.sync import SyncEventStream, SyncRingbackClient

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
    "EventStream",
    "Forbidden",
    "Gone",
    "InputRequest",
    "InvalidRequest",
    "Listener",
    "NamedWebhookOptions",
    "NotFound",
    "Problem",
    "ProblemType",
    "Progress",
    "ProgressOptions",
    "PublicKey",
    "QuotaExceeded",
    "Readiness",
    "RegisteredWebhook",
    "Reloaded",
    "Replay",
    "ReportOptions",
    "ResultInfo",
    "Resumed",
    "RingbackClient",
    "RotatedWebhook",
    "Started",
    "SyncEventStream",
    "SyncRingbackClient",
    "Tool",
    "Unauthenticated",
    "Unavailable",
    "UnexpectedAnswer",
    "Upstream",
    "Webhook",
    "WebhookChange",
    "WebhookOptions",
]
