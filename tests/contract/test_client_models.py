"""The client's requests and models have every member of the OpenAPI document."""

import inspect
import json
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel

from ringback.client import (
    RingbackClient,
    administration_models,
    insight_models,
    models,
    options,
    service_models,
    upstream_models,
    webhook_models,
)

SCHEMAS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "openapi" / "ringback.json").read_text(encoding="utf-8")
)["components"]["schemas"]

RESPONSE_TYPES: dict[type[BaseModel], str] = {
    models.Answered: "AnsweredView",
    administration_models.ApiKey: "KeyView",
    administration_models.ApiKeyPage: "KeyPageView",
    webhook_models.Attempt: "AttemptView",
    models.BatchedCall: "BatchedCallView",
    models.Call: "CallView",
    models.CallError: "CallErrorView",
    models.CallPage: "CallPageView",
    models.Cancellation: "CancelledCallsView",
    webhook_models.ChangedWebhook: "ChangedWebhookView",
    administration_models.CreatedApiKey: "CreatedKeyView",
    webhook_models.Delivery: "DeliveryView",
    webhook_models.DeliveryDetail: "DeliveryWithAttemptsView",
    webhook_models.DeliveryPage: "DeliveryPageView",
    administration_models.AuditEntry: "AuditEntryView",
    administration_models.AuditPage: "AuditPageView",
    administration_models.CreatedPortalLink: "CreatedPortalLinkView",
    administration_models.Erasure: "ErasureView",
    administration_models.PortalLink: "PortalLinkView",
    administration_models.PortalLinkPage: "PortalLinkPageView",
    models.Event: "EventView",
    models.EventPage: "EventPageView",
    models.EventType: "EventTypeView",
    models.EventTypeList: "EventTypesView",
    models.PublishedEvent: "PublishedEventView",
    models.PublishedEvents: "PublishedEventsView",
    insight_models.CallHistory: "CallHistoryView",
    insight_models.CallResume: "CallResumeView",
    models.InputRequest: "InputRequestView",
    insight_models.Insights: "InsightsView",
    insight_models.HourInsights: "HourView",
    insight_models.Latency: "LatencyView",
    insight_models.UpstreamInsights: "UpstreamInsightsView",
    insight_models.ClientSession: "SessionView",
    insight_models.ClientSessionPage: "SessionPageView",
    insight_models.SessionInsights: "SessionInsightsView",
    models.Joined: "JoinedCallsView",
    models.Listener: "ListenerView",
    service_models.ProblemType: "ProblemTypeView",
    models.Progress: "ProgressView",
    service_models.PublicKey: "JwkView",
    service_models.PublicKeySet: "JwkSetView",
    service_models.Readiness: "ReadinessView",
    webhook_models.Redelivery: "RedeliveredView",
    webhook_models.RequestedDelivery: "RequestedDeliveryView",
    service_models.ServiceStatus: "StatusView",
    webhook_models.RegisteredWebhook: "RegisteredWebhookView",
    upstream_models.Reloaded: "ReloadedView",
    webhook_models.Replay: "ReplayedView",
    models.ResumeToken: "ResumeTokenView",
    models.Resumed: "ResumedView",
    administration_models.RotatedApiKey: "RotatedKeyView",
    webhook_models.RotatedWebhook: "RotatedWebhookView",
    models.Started: "StartedCallView",
    models.StartedBatch: "StartedBatchView",
    upstream_models.CompletedLogin: "CompletedLoginView",
    upstream_models.LoginState: "LoginStateView",
    upstream_models.StartedLogin: "StartedLoginView",
    upstream_models.ToolList: "ToolsView",
    upstream_models.Upstream: "UpstreamView",
    upstream_models.UpstreamIntake: "UpstreamIntakeView",
    upstream_models.UpstreamRestart: "UpstreamRestartView",
    upstream_models.SkippedUpstream: "SkippedUpstreamView",
    upstream_models.UpstreamList: "UpstreamsView",
    administration_models.Usage: "UsageView",
    administration_models.UsedLimit: "UsedLimitView",
    webhook_models.Webhook: "WebhookView",
    webhook_models.WebhookPage: "WebhookPageView",
}


def list_option_names(options_type: type) -> frozenset[str]:
    return frozenset(get_type_hints(options_type))


def list_parameters(method: Any) -> frozenset[str]:
    return frozenset(inspect.signature(method).parameters) - {"self"}


REQUEST_METHODS: dict[str, AbstractSet[str]] = {
    "AdoptBody": list_option_names(options.AdoptOptions) | {"upstream", "task_id"},
    "AnswerBody": list_parameters(RingbackClient.answer) - {"call_id"},
    "CallCallbackBody": list_option_names(options.CallbackOptions),
    "BatchedCallBody": list_option_names(options.CallOptions),
    "CancelCallsBody": list_parameters(RingbackClient.cancel_calls),
    "ChangeWebhookBody": list_option_names(options.WebhookChange),
    "CreateKeyBody": list_parameters(RingbackClient.create_key),
    "DeclareEventTypeBody": list_parameters(RingbackClient.declare_event_type) - {"name"},
    "PublishEventBody": list_option_names(options.NewEvent),
    "PublishEventsBody": list_parameters(RingbackClient.publish_events),
    "NamedWebhookBody": list_option_names(options.NamedWebhookOptions) | {"url"},
    "ProgressBody": list_option_names(options.ProgressOptions),
    "OwnRetriesBody": list_option_names(options.OwnRetries),
    "RedeliverBody": list_option_names(options.RedeliveryOptions),
    "RegisterWebhookBody": list_option_names(options.WebhookOptions) | {"url"},
    "ReplayBody": list_parameters(RingbackClient.replay_webhook) - {"webhook_id"},
    "ReportBody": list_option_names(options.ReportOptions) | {"key", "upstream", "tool"},
    "ResumeBody": list_parameters(RingbackClient.resume),
    "ResumeTokenBody": list_parameters(RingbackClient.fresh_resume_token) - {"call_id"},
    "RotateKeyBody": list_parameters(RingbackClient.rotate_key) - {"key_id"},
    "RotateSecretBody": list_parameters(RingbackClient.rotate_secret) - {"webhook_id"},
    "StartBatchBody": list_parameters(RingbackClient.start_calls),
    "CreatePortalLinkBody": list_parameters(RingbackClient.create_portal_link),
    "StartLoginBody": list_parameters(RingbackClient.start_login) - {"upstream"},
    "CompleteLoginBody": list_parameters(RingbackClient.complete_login) - {"upstream"},
    "StartCallBody": list_parameters(RingbackClient.start_call) - {"idempotency_key"},
}
"""`JoinCallsBody` is what wait_any and wait_all send; its members are not the caller's."""


def test_a_model_of_the_client_has_every_member_of_the_response() -> None:
    for model, schema in RESPONSE_TYPES.items():
        names = {field.alias or name for name, field in model.model_fields.items()}
        assert names == set(SCHEMAS[schema]["properties"]), model


def test_the_client_can_send_every_member_of_a_request() -> None:
    for body, members in REQUEST_METHODS.items():
        assert members == set(SCHEMAS[body]["properties"]), body


def test_every_request_and_response_of_the_clients_routes_is_compared() -> None:
    compared = {*RESPONSE_TYPES.values(), *REQUEST_METHODS, "JoinCallsBody"}
    others = {"OwnRetriesView", "CallErrorView", "CallbackBody", "HealthView", "ErrorBody"}

    assert {name for name in SCHEMAS if name.endswith(("View", "Body"))} - compared - others == set()
