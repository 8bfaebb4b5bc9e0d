"""The examples of each schema in the OpenAPI document."""

from typing import Any, Final

from ringback.schemas import administration_examples, callback_examples, examples

EXAMPLES_BY_SCHEMA: Final[dict[str, list[dict[str, Any]]]] = {
    "AnswerBody": [examples.ANSWER],
    "AnsweredView": [examples.ANSWERED],
    "StartCallBody": [examples.START_CALL, examples.START_CALL_WITH_CALLBACK],
    "StartedCallView": [
        examples.STARTED_CALL,
        {
            "call_id": examples.CALL_ID,
            "call": examples.FINISHED_CALL,
            "resume_token": examples.RESUME_TOKEN,
            "webhooks": [],
            "result": examples.RESULT,
        },
    ],
    "StartBatchBody": [examples.START_BATCH],
    "StartedBatchView": [{"calls": [{**examples.STARTED_CALL, "replayed": False}]}],
    "AdoptBody": [examples.ADOPT_TASK],
    "ReportBody": [examples.REPORT_START, examples.REPORT_END],
    "CallView": [examples.WORKING_CALL, examples.FINISHED_CALL, examples.FAILED_CALL, examples.INPUT_REQUIRED_CALL],
    "JoinCallsBody": [{"call_ids": [examples.CALL_ID], "mode": "all", "wait_seconds": 30}],
    "JoinedCallsView": [{"calls": [examples.FINISHED_CALL], "done": True}],
    "CallPageView": [{"calls": [examples.WORKING_CALL], "next_cursor": None}],
    "NamedWebhookBody": [examples.PUT_WEBHOOK],
    "RegisterWebhookBody": [examples.REGISTER_WEBHOOK, examples.REGISTER_CHANGE_WEBHOOK],
    "RegisteredWebhookView": [examples.REGISTERED_WEBHOOK],
    "ChangeWebhookBody": [{"state": "disabled"}, {"paused": True}, {"retries": {"schedule": [5, 10, 20]}}],
    "ChangedWebhookView": [{**examples.WEBHOOK, **examples.DUE_NOW}],
    "RotateSecretBody": [{"overlap_seconds": 3600}],
    "RotatedWebhookView": [
        {
            **examples.WEBHOOK,
            **examples.DUE_NOW,
            "overlap_ends_at": "2026-11-20T18:00:00.000Z",
            "secret": examples.SECRET,
        }
    ],
    "ReplayBody": [{"dead": True}, {"since": "2026-11-20T12:00:00Z"}, {"cursor": examples.CURSOR}],
    "ReplayedView": [{**examples.DUE_NOW, "replayed": 2, "still_open": 1, "more": False, "cursor": None}],
    "WebhookView": [examples.WEBHOOK],
    "WebhookPageView": [{"webhooks": [examples.WEBHOOK], "next_cursor": None}],
    "ResumeBody": [{"resume_token": examples.RESUME_TOKEN, "wait_seconds": 30}],
    "ResumeTokenBody": [{"revoke_older": True}],
    "ResumeTokenView": [{"resume_token": examples.RESUME_TOKEN}],
    "ResumedView": [
        {
            "call": examples.FINISHED_CALL,
            "events": [examples.EVENT],
            "truncated": False,
            "resume_token": examples.RESUME_TOKEN,
            "result": examples.RESULT,
        }
    ],
    "EventPageView": [{"events": [examples.EVENT], "cursor": examples.CURSOR, "truncated": False, "has_more": False}],
    "PublishEventBody": [examples.PUBLISH_EVENT],
    "PublishEventsBody": [{"events": [examples.PUBLISH_EVENT]}],
    "PublishedEventView": [{"eventId": "order-7-paid", "created": True}],
    "PublishedEventsView": [{"events": [{"eventId": "order-7-paid", "created": True}]}],
    "DeclareEventTypeBody": [{"description": "A customer paid an order.", "payload_schema": {"type": "object"}}],
    "EventTypeView": [examples.EVENT_TYPE],
    "EventTypesView": [{"event_types": [examples.EVENT_TYPE]}],
    "CallHistoryView": [
        {
            "call": examples.FINISHED_CALL,
            "events": [examples.EVENT],
            "deliveries": [{**examples.DELIVERY, "attempts": [examples.ATTEMPT]}],
            "resumes": [{"resumed_at": "2026-11-20T17:00:09.000Z", "surface": "rest_resume", "resumes": 1}],
            "resume_count": 1,
            "truncated": False,
        }
    ],
    "DeliveryPageView": [{"deliveries": [examples.DELIVERY], "next_cursor": None}],
    "DeliveryView": [examples.DELIVERY],
    "DeliveryWithAttemptsView": [{**examples.DELIVERY, "attempts": [examples.ATTEMPT]}],
    "RequestedDeliveryView": [{**examples.DELIVERY, **examples.DUE_NOW}],
    "RedeliverBody": [
        {"category": "http_5xx", "since": "2026-11-20T12:00:00Z"},
        {"webhook_id": examples.WEBHOOK_ID, "dry_run": True},
    ],
    "RedeliveredView": [{**examples.DUE_NOW, "redelivered": 3, "skipped": 0, "webhooks": 1, "cursor": None}],
    "CancelCallsBody": [{"upstream": "git", "tool": "git_log"}, {"client_session_id": "session-7", "dry_run": True}],
    "CancelledCallsView": [{"cancelled": 12, "requested": 4, "more": False}],
    "UpstreamIntakeView": [{"name": "git", "intake": "paused", "skipped": None}],
    "UpstreamRestartView": [{"name": "git", "connections": 1, "calls": 2}],
    "CreateKeyBody": [{"principal": "reports-team", "upstreams": ["git"], "expires_in_seconds": 7776000}],
    "CreatedKeyView": [{**administration_examples.KEY, "key": examples.API_KEY}],
    "KeyView": [administration_examples.KEY],
    "KeyPageView": [{"keys": [administration_examples.KEY], "next_cursor": None}],
    "RotateKeyBody": [{"overlap_seconds": 86400}],
    "RotatedKeyView": [administration_examples.ROTATED_KEY],
    "CreatePortalLinkBody": [{"client_session_id": "session-7", "expires_in_seconds": 3600}],
    "CreatedPortalLinkView": [{**administration_examples.PORTAL_LINK, "url": administration_examples.PORTAL_URL}],
    "PortalLinkView": [administration_examples.PORTAL_LINK],
    "PortalLinkPageView": [{"portal_links": [administration_examples.PORTAL_LINK], "next_cursor": None}],
    "AuditEntryView": [administration_examples.AUDIT_ENTRY],
    "AuditPageView": [{"entries": [administration_examples.AUDIT_ENTRY], "next_cursor": None}],
    "ErasureView": [administration_examples.ERASURE],
    "UsageView": [{"limits": [{"name": "open_calls", "limit": 10000, "used": 12, "scope": "service"}]}],
    "InsightsView": [administration_examples.INSIGHTS],
    "SessionPageView": [{"sessions": [administration_examples.SESSION], "next_cursor": None}],
    "SessionInsightsView": [
        {
            "client_session_id": "session-7",
            "first_call_at": "2026-11-20T16:58:00.000Z",
            "last_call_at": "2026-11-20T17:00:00.000Z",
            "call_count": 1,
            "is_complete": True,
            "calls_by_status": {"completed": 1},
            "calls_by_outcome": {"result": 1},
            "resumed_calls": 1,
            "answered_calls": 0,
            "calls": [examples.FINISHED_CALL],
            "next_cursor": None,
        }
    ],
    "UpstreamsView": [{"upstreams": [examples.UPSTREAM, examples.HOSTED_UPSTREAM]}],
    "StartLoginBody": [{"redirect_uri": "https://app.example.com/signed-in"}, {"scope": "tickets:read tickets:write"}],
    "StartedLoginView": [examples.STARTED_LOGIN],
    "CompleteLoginBody": [{"redirected_to": "https://app.example.com/signed-in?code=…&state=…"}],
    "CompletedLoginView": [
        {
            "upstream": "tickets",
            "owner": "principal",
            "scope": "tickets:read",
            "expires_at": "2026-11-20T18:00:00.000Z",
        }
    ],
    "SkippedUpstreamView": [administration_examples.SKIPPED_UPSTREAM],
    "ReloadedView": [
        {
            "added": ["search"],
            "changed": [],
            "removed": ["archive"],
            "unchanged": ["git"],
            "skipped": [administration_examples.SKIPPED_UPSTREAM],
            "kept": [],
            "queued_calls": {"archive": 2},
        }
    ],
    "ToolsView": [{"tools": [examples.TOOL]}],
    "JwkSetView": [examples.JWK_SET],
    "VerificationEnvelope": [{"type": "verification", "challenge": examples.CHALLENGE}],
    "VerificationAnswer": [{"challenge": examples.CHALLENGE}],
    "HealthView": [{"status": "ok"}],
    "ReadinessView": [
        {
            "status": "ready",
            "degraded": [],
            "roles": {"api": True, "runner": True, "dispatcher": True, "janitor": True},
        }
    ],
    "StatusView": [
        {
            "version": "1.0.0",
            "time": "2026-11-20T17:00:06.000Z",
            "public_url": "https://ringback.example.com",
            "problem": None,
            "roles": {"api": True, "runner": True, "dispatcher": True, "janitor": True},
            "failing_workers": [],
            "failing_endpoints": [],
            "lacks_keys": False,
            "failing_webhooks": 0,
            "oldest_due_delivery_age_seconds": 0.0,
            "upstreams": [examples.UPSTREAM],
        }
    ],
    "ProblemTypeView": [{"type": "/problems/unknown-tool", "title": "Unknown tool", "status": 422}],
    "FinishedCallback": [callback_examples.FINISHED_CALLBACK, callback_examples.FAILED_CALLBACK],
    "InputRequiredCallback": [callback_examples.INPUT_REQUIRED_CALLBACK],
    "ProgressCallback": [callback_examples.PROGRESS_CALLBACK],
    "TestCallback": [callback_examples.TEST_CALLBACK],
    "FailingCallback": [callback_examples.FAILING_CALLBACK],
    "SuspendedCallback": [callback_examples.SUSPENDED_CALLBACK],
    "RecoveredCallback": [callback_examples.RECOVERED_CALLBACK],
    "UpstreamChangedCallback": [callback_examples.UPSTREAM_CHANGED_CALLBACK],
    "PublishedCallback": [callback_examples.PUBLISHED_CALLBACK],
    "GapEnvelope": [callback_examples.GAP],
}
"""By the name of the schema."""
