"""One story, told in examples: a call of a git server's tool, the webhook that rings for it, and what came of both."""

from typing import Any, Final

CALL_ID: Final = "call_01KAGZ8A00QW7T3M5N9R1S2V4X"
WEBHOOK_ID: Final = "wh_01KAGZ7Z00B8C4D2E6F1G5H3J7"
EVENT_ID: Final = "evt_01KAGZ8G00A1B2C3D4E5F6G7H8"
DELIVERY_ID: Final = "dlv_01KAGZ8G00K9M8N7P6Q5R4S3T2"
CURSOR: Final = "MTpldmVudHM6NDI"
RESUME_TOKEN: Final = "eyJjYWxsIjoi….bm90IGEgcmVhbCBzaWduYXR1cmU"  # noqa: S105 - an example
SECRET: Final = "whsec_ZXhhbXBsZSBzZWNyZXQsIG5vdCBhIHJlYWwgb25l"  # noqa: S105 - an example

_SHA256: Final = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_IDS: Final[dict[str, Any]] = {"client_session_id": "session-7", "correlation_id": "weekly-report"}

RESULT: Final[dict[str, Any]] = {"content": [{"type": "text", "text": "commit 6c0c8d5 …"}], "isError": False}

WORKING_CALL: Final[dict[str, Any]] = {
    "id": CALL_ID,
    "upstream": "git",
    "tool": "git_log",
    **_IDS,
    "status": "working",
    "outcome": None,
    "progress": {"progress": 3.0, "total": 10.0, "message": None},
    "error": None,
    "result_bytes": None,
    "result_sha256": None,
    "rerun_policy": "never",
    "cancel_requested": False,
    "runs": 1,
    "created_at": "2026-11-20T17:00:00.000Z",
    "updated_at": "2026-11-20T17:00:03.000Z",
    "dispatched_at": "2026-11-20T17:00:00.012Z",
    "finished_at": None,
    "deadline_at": "2026-11-27T17:00:00.000Z",
    "expires_at": None,
}
FINISHED_CALL: Final[dict[str, Any]] = {
    **WORKING_CALL,
    "status": "completed",
    "outcome": "result",
    "result_bytes": 1234,
    "result_sha256": _SHA256,
    "updated_at": "2026-11-20T17:00:06.000Z",
    "finished_at": "2026-11-20T17:00:06.000Z",
    "expires_at": "2026-11-27T17:00:06.000Z",
}

START_CALL: Final[dict[str, Any]] = {
    "upstream": "git",
    "tool": "git_log",
    "arguments": {"repo_path": "/srv/repo", "max_count": 10},
    **_IDS,
}
START_CALL_WITH_CALLBACK: Final[dict[str, Any]] = {
    **START_CALL,
    "callback": {"url": "https://agent.example/callback", "correlation_id": "inbox-3"},
    "wait_seconds": 10,
}

WEBHOOK: Final[dict[str, Any]] = {
    "id": WEBHOOK_ID,
    "url": "https://agent.example/callback",
    "events": ["call.finished", "call.input_required"],
    "upstream": None,
    "tool": None,
    "call_id": None,
    "client_session_id": "session-7",
    "correlation_id": None,
    "match_correlation": False,
    "retries": "days",
    "include_result": False,
    "description": "rings the report agent",
    "state": "active",
    "origin": "rest",
    "created_at": "2026-11-20T16:59:00.000Z",
    "updated_at": "2026-11-20T16:59:00.000Z",
    "expires_at": None,
    "last_delivery_at": None,
    "last_error": None,
    "failing_since": None,
}
REGISTER_WEBHOOK: Final[dict[str, Any]] = {
    "url": "https://agent.example/callback",
    "client_session_id": "session-7",
    "description": "rings the report agent",
}
REGISTERED_WEBHOOK: Final[dict[str, Any]] = {
    **WEBHOOK,
    "hears": "Rings for call.finished, call.input_required of your calls with client_session_id 'session-7', from now on.",
    "secret": SECRET,
}

FINISHED_DATA: Final[dict[str, Any]] = {
    "call_id": CALL_ID,
    "status": "completed",
    "upstream": "git",
    "tool": "git_log",
    "correlation_id": "weekly-report",
    "client_session_id": "session-7",
    "created_at": "2026-11-20T17:00:00.000Z",
    "outcome": "result",
    "result_bytes": 1234,
    "result_sha256": _SHA256,
    "finished_at": "2026-11-20T17:00:06.000Z",
}
EVENT: Final[dict[str, Any]] = {
    "eventId": EVENT_ID,
    "name": "call.finished",
    "timestamp": "2026-11-20T17:00:06.000Z",
    "cursor": CURSOR,
    "data": FINISHED_DATA,
}

_FOR_THE_RECEIVER: Final[dict[str, Any]] = {
    "webhook_correlation_id": "inbox-3",
    "resume_token": RESUME_TOKEN,
    "resume_url": "https://ringback.example/v1/resume",
}
_STILL: Final[dict[str, Any]] = {
    name: FINISHED_DATA[name]
    for name in ("call_id", "upstream", "tool", "correlation_id", "client_session_id", "created_at")
}
FINISHED_CALLBACK: Final[dict[str, Any]] = {**EVENT, "data": {**FINISHED_DATA, **_FOR_THE_RECEIVER}}
INPUT_REQUIRED_CALLBACK: Final[dict[str, Any]] = {
    **EVENT,
    "name": "call.input_required",
    "data": {**_STILL, "status": "input_required", **_FOR_THE_RECEIVER},
}
PROGRESS_CALLBACK: Final[dict[str, Any]] = {
    **EVENT,
    "name": "call.progress",
    "data": {**_STILL, "status": "working", "progress": WORKING_CALL["progress"], **_FOR_THE_RECEIVER},
}

DELIVERY: Final[dict[str, Any]] = {
    "id": DELIVERY_ID,
    "webhook_id": WEBHOOK_ID,
    "event_id": EVENT_ID,
    "call_id": CALL_ID,
    "generation": 1,
    "state": "pending",
    "attempt_count": 1,
    "last_category": "http_5xx",
    "due_at": "2026-11-20T17:00:11.000Z",
    "give_up_at": "2026-11-24T17:00:06.000Z",
    "created_at": "2026-11-20T17:00:06.000Z",
    "finished_at": None,
}
ATTEMPT: Final[dict[str, Any]] = {
    "id": "att_01KAGZ8G00Z1Y2X3W4V5T6S7R8",
    "number": 1,
    "started_at": "2026-11-20T17:00:06.002Z",
    "duration_ms": 41,
    "category": "http_5xx",
    "status_code": 503,
    "excerpt": "deploying",
}

UPSTREAM: Final[dict[str, Any]] = {
    "name": "git",
    "transport": "stdio",
    "state": "ready",
    "protocol_version": "2025-11-25",
    "last_error": None,
    "calls_in_flight": 1,
    "max_concurrent": 16,
}
TOOL: Final[dict[str, Any]] = {
    "name": "git_log",
    "description": "Shows the commit logs",
    "inputSchema": {
        "type": "object",
        "properties": {"repo_path": {"type": "string"}, "max_count": {"type": "integer"}},
        "required": ["repo_path"],
    },
}

EXAMPLES_OF: Final[dict[str, list[dict[str, Any]]]] = {
    "StartCallBody": [START_CALL, START_CALL_WITH_CALLBACK],
    "StartedCallView": [
        {
            "call": WORKING_CALL,
            "resume_token": RESUME_TOKEN,
            "webhooks": [{"id": WEBHOOK_ID, "state": "active", "url": "https://agent.example/callback"}],
        },
        {"call": FINISHED_CALL, "resume_token": RESUME_TOKEN, "webhooks": [], "result": RESULT},
    ],
    "CallView": [WORKING_CALL, FINISHED_CALL],
    "CallPageView": [{"calls": [WORKING_CALL], "next_cursor": None}],
    "RegisterWebhookBody": [REGISTER_WEBHOOK],
    "RegisteredWebhookView": [REGISTERED_WEBHOOK],
    "ChangeWebhookBody": [{"state": "disabled"}],
    "WebhookView": [WEBHOOK],
    "WebhookPageView": [{"webhooks": [WEBHOOK], "next_cursor": None}],
    "ResumeBody": [{"resume_token": RESUME_TOKEN, "wait_seconds": 30}],
    "ResumedView": [{"call": FINISHED_CALL, "events": [EVENT], "resume_token": RESUME_TOKEN, "result": RESULT}],
    "EventPageView": [{"events": [EVENT], "cursor": CURSOR, "truncated": False, "has_more": False}],
    "DeliveryPageView": [{"deliveries": [DELIVERY], "next_cursor": None}],
    "DeliveryWithAttemptsView": [{**DELIVERY, "attempts": [ATTEMPT]}],
    "UpstreamsView": [{"upstreams": [UPSTREAM]}],
    "ToolsView": [{"tools": [TOOL]}],
    "HealthView": [{"status": "ok"}],
    "ReadinessView": [{"status": "ready"}],
    "ProblemTypeView": [{"type": "/problems/unknown-tool", "title": "Unknown tool", "status": 422}],
    "FinishedCallback": [FINISHED_CALLBACK],
    "InputRequiredCallback": [INPUT_REQUIRED_CALLBACK],
    "ProgressCallback": [PROGRESS_CALLBACK],
}
"""By the name of the schema that they are examples of."""
