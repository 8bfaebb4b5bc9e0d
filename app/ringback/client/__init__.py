"""A typed client of Ringback's REST API, on httpx.

    async with RingbackClient("http://127.0.0.1:8090", api_key="rbk_…") as ringback:
        started = await ringback.start_call("git", "git_log", {"repo_path": "."}, correlation_id="c1")
        call = await ringback.wait(started.call_id, timeout_seconds=60)
        result = await ringback.result(call.id)

    client              RingbackClient: starts and changes calls
    call_reads          its methods that read calls, and wait for their ends
    awaited_calls       the wait for all calls that match
    results             … about stored results
    webhooks            … webhooks and deliveries
    events              … the event log
    upstreams           … upstreams and their tools
    erasures            … erasures
    insights            … insights, client sessions and histories of calls
    keys                … API keys
    portal_links        … portal links and the audit log
    operations          … health, metrics, public keys
    repeatable_starts   the idempotency keys and callback secrets of started calls
    arguments           checks of the methods' arguments
    resource_client     the base class of these groups of methods
    event_stream        EventStream: the event log over one connection, reconnected by cursor
    server_sent_events  … the frames of one response, read by httpx-sse with limits
    http_transport      requests: retries and timeouts
    response_limits     … how long a response may take
    responses           … what a response says, or the lack of one: a value, or an error
    http_clients        the httpx client, and its replacement after many cancelled requests
    long_polls          how many requests wait at the same time, and how long
    options             optional members of requests
    models              the returned values: calls and events
    webhook_models      … about webhooks and deliveries
    service_models      … about results and the service itself
    administration_models  … about API keys, portal links, the audit log, erasures and quotas
    insight_models         … about insights, client sessions and the history of a call
    upstream_models        … about upstreams and their tools
    problems            the errors, one tree
    sync                SyncRingbackClient: the same methods without `await`, generated from RingbackClient
    durable             DurableCaller: calls that outlive the process that requested them

The client imports nothing of the service. A name is imported with its first use, because few processes use everything.
"""

import typing

from ringback import lazy_names

if typing.TYPE_CHECKING:
    from ringback.client.administration_models import (
        ApiKey,
        AuditEntry,
        CreatedApiKey,
        CreatedPortalLink,
        Erasure,
        PortalLink,
        RotatedApiKey,
        UsedLimit,
    )
    from ringback.client.client import RingbackClient
    from ringback.client.durable import (
        CallHandle,
        DurableCaller,
        MemoryRequestState,
        RedisRequestState,
        RequestStateManager,
        SQLiteRequestState,
    )
    from ringback.client.event_stream import EventStream
    from ringback.client.insight_models import (
        CallHistory,
        CallResume,
        ClientSession,
        HourInsights,
        Insights,
        Latency,
        SessionInsights,
        UpstreamInsights,
    )
    from ringback.client.models import (
        Answered,
        BatchedCall,
        Call,
        CallError,
        Cancellation,
        Event,
        EventPage,
        EventType,
        InputRequest,
        Listener,
        Progress,
        PublishedEvent,
        Resumed,
        Started,
    )
    from ringback.client.options import (
        AdoptOptions,
        CallbackOptions,
        CallOptions,
        EventOptions,
        NamedWebhookOptions,
        NewEvent,
        OwnRetries,
        ProgressOptions,
        RedeliveryOptions,
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
        InvalidArgument,
        InvalidRequest,
        NotFound,
        Problem,
        QuotaExceeded,
        Unauthenticated,
        Unavailable,
        UnexpectedAnswer,
    )
    from ringback.client.service_models import ProblemType, PublicKey, Readiness, ResultInfo, ServiceStatus
    from ringback.client.sync import SyncEventStream, SyncRingbackClient
    from ringback.client.upstream_models import (
        CompletedLogin,
        LoginState,
        Reloaded,
        SkippedUpstream,
        StartedLogin,
        Tool,
        Upstream,
        UpstreamIntake,
        UpstreamRestart,
    )
    from ringback.client.webhook_models import (
        Attempt,
        ChangedWebhook,
        Delivery,
        DeliveryDetail,
        OpenDeliveries,
        Redelivery,
        RegisteredWebhook,
        Replay,
        RequestedDelivery,
        RotatedWebhook,
        Webhook,
    )

__all__ = [
    "AdoptOptions",
    "Answered",
    "ApiKey",
    "Attempt",
    "AuditEntry",
    "BatchedCall",
    "Call",
    "CallError",
    "CallHandle",
    "CallHistory",
    "CallOptions",
    "CallResume",
    "CallbackOptions",
    "Cancellation",
    "ChangedWebhook",
    "ClientError",
    "ClientSession",
    "CompletedLogin",
    "Conflict",
    "ConnectionFailed",
    "CreatedApiKey",
    "CreatedPortalLink",
    "Delivery",
    "DeliveryDetail",
    "DurableCaller",
    "Erasure",
    "Event",
    "EventOptions",
    "EventPage",
    "EventStream",
    "EventType",
    "Forbidden",
    "Gone",
    "HourInsights",
    "InputRequest",
    "Insights",
    "InvalidArgument",
    "InvalidRequest",
    "Latency",
    "Listener",
    "LoginState",
    "MemoryRequestState",
    "NamedWebhookOptions",
    "NewEvent",
    "NotFound",
    "OpenDeliveries",
    "OwnRetries",
    "PortalLink",
    "Problem",
    "ProblemType",
    "Progress",
    "ProgressOptions",
    "PublicKey",
    "PublishedEvent",
    "QuotaExceeded",
    "Readiness",
    "Redelivery",
    "RedeliveryOptions",
    "RedisRequestState",
    "RegisteredWebhook",
    "Reloaded",
    "Replay",
    "ReportOptions",
    "RequestStateManager",
    "RequestedDelivery",
    "ResultInfo",
    "Resumed",
    "RingbackClient",
    "RotatedApiKey",
    "RotatedWebhook",
    "SQLiteRequestState",
    "ServiceStatus",
    "SessionInsights",
    "SkippedUpstream",
    "Started",
    "StartedLogin",
    "SyncEventStream",
    "SyncRingbackClient",
    "Tool",
    "Unauthenticated",
    "Unavailable",
    "UnexpectedAnswer",
    "Upstream",
    "UpstreamInsights",
    "UpstreamIntake",
    "UpstreamRestart",
    "UsedLimit",
    "Webhook",
    "WebhookChange",
    "WebhookOptions",
]

_NAMES_BY_MODULE: typing.Final = {
    "ringback.client.administration_models": (
        "ApiKey AuditEntry CreatedApiKey CreatedPortalLink Erasure PortalLink RotatedApiKey UsedLimit"
    ),
    "ringback.client.client": "RingbackClient",
    "ringback.client.durable": (
        "CallHandle DurableCaller MemoryRequestState RedisRequestState RequestStateManager SQLiteRequestState"
    ),
    "ringback.client.event_stream": "EventStream",
    "ringback.client.insight_models": (
        "CallHistory CallResume ClientSession HourInsights Insights Latency SessionInsights UpstreamInsights"
    ),
    "ringback.client.models": (
        "Answered BatchedCall Call CallError Cancellation Event EventPage EventType InputRequest Listener Progress "
        "PublishedEvent Resumed Started"
    ),
    "ringback.client.options": (
        "AdoptOptions CallOptions CallbackOptions EventOptions NamedWebhookOptions NewEvent OwnRetries "
        "ProgressOptions RedeliveryOptions ReportOptions WebhookChange WebhookOptions"
    ),
    "ringback.client.problems": (
        "ClientError Conflict ConnectionFailed Forbidden Gone InvalidArgument InvalidRequest NotFound Problem "
        "QuotaExceeded Unauthenticated Unavailable UnexpectedAnswer"
    ),
    "ringback.client.service_models": "ProblemType PublicKey Readiness ResultInfo ServiceStatus",
    "ringback.client.sync": "SyncEventStream SyncRingbackClient",
    "ringback.client.upstream_models": (
        "CompletedLogin LoginState Reloaded SkippedUpstream StartedLogin Tool Upstream UpstreamIntake UpstreamRestart"
    ),
    "ringback.client.webhook_models": (
        "Attempt ChangedWebhook Delivery DeliveryDetail OpenDeliveries Redelivery RegisteredWebhook Replay "
        "RequestedDelivery RotatedWebhook Webhook"
    ),
}
if not typing.TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__ = lazy_names.import_on_first_use(__name__, _NAMES_BY_MODULE)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
