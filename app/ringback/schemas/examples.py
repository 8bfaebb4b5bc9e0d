"""Values of the examples in the OpenAPI document: one call of a git server's tool, its webhook, events and deliveries."""

import json
from typing import Any, Final

CALL_ID: Final = "call_01KAGZ8A00QW7T3M5N9R1S2V4X"
WEBHOOK_ID: Final = "wh_01KAGZ7Z00B8C4D2E6F1G5H3J7"
OTHER_WEBHOOK_ID: Final = "wh_01KAGZ7Z00C9D5E3F7G2H6J4K8"
WEBHOOK_NAME: Final = "reports-agent"
EVENT_ID: Final = "evt_01KAGZ8G00A1B2C3D4E5F6G7H8"
KEY_ID: Final = "key_01KAGZ7Q00F2G4H6J8K1M3N5P7"
NEW_KEY_ID: Final = "key_01KAGZ9Q00G3H5J7K9M2N4P6Q8"
API_KEY: Final = "rbk_EXAMPLEnotarealkey0000000000000000000000"
PORTAL_LINK_ID: Final = "link_01KAGZCQ00J5K7M9N2P4Q6R8S1"
ERASURE_ID: Final = "era_01KAGZBX00H4J6K8M1N3P5Q7R9"
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
    "waits_for": None,
    "outcome": None,
    "progress": {"progress": 3.0, "total": 10.0, "message": None},
    "error": None,
    "result_bytes": None,
    "result_sha256": None,
    "accepts_input": False,
    "input_requests": {},
    "rerun_policy": "never",
    "cancel_requested": False,
    "runs": 1,
    "created_at": "2026-11-20T17:00:00.000Z",
    "updated_at": "2026-11-20T17:00:03.000Z",
    "dispatched_at": "2026-11-20T17:00:00.012Z",
    "finished_at": None,
    "not_before": None,
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
FAILED_CALL: Final[dict[str, Any]] = {
    **FINISHED_CALL,
    "status": "failed",
    "outcome": "upstream_error",
    "error": {
        "code": "upstream_error",
        "message": "no such repository",
        "jsonrpc": {"code": -32001, "message": "no such repository", "data": {"path": "/srv/repo"}},
    },
    "result_bytes": None,
    "result_sha256": None,
}
INPUT_REQUIRED_CALL: Final[dict[str, Any]] = {
    **WORKING_CALL,
    "status": "input_required",
    "accepts_input": True,
    "input_requests": {
        "r1.1": {
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": "Which branch?",
                "requestedSchema": {"type": "object", "properties": {"branch": {"type": "string"}}},
            },
        }
    },
}
ANSWER: Final[dict[str, Any]] = {"responses": {"r1.1": {"action": "accept", "content": {"branch": "main"}}}}
ANSWERED: Final[dict[str, Any]] = {
    "call": {**WORKING_CALL, "accepts_input": True},
    "accepted": ["r1.1"],
    "ignored": [],
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

START_BATCH: Final[dict[str, Any]] = {
    "calls": [
        {**START_CALL, "idempotency_key": "weekly-report-47/log"},
        {**START_CALL, "not_before": "2026-11-21T06:00:00Z", "idempotency_key": "weekly-report-48/log"},
    ]
}

ADOPT_TASK: Final[dict[str, Any]] = {
    "upstream": "git",
    "task_id": "786512e2-9e0d-44bd-8f29-789f320fe840",
    "tool": "git_log",
    **_IDS,
}

REPORT_START: Final[dict[str, Any]] = {
    "key": "build-4711",
    "upstream": "build-farm",
    "tool": "build_report",
    **_IDS,
    "callback": {"url": "https://agent.example/callback"},
    "timeout_seconds": 3600,
}
REPORT_END: Final[dict[str, Any]] = {
    "key": "build-4711",
    "upstream": "build-farm",
    "tool": "build_report",
    "result": RESULT,
}

PUBLISH_EVENT: Final[dict[str, Any]] = {
    "name": "order.paid",
    "data": {"order": 7},
    "id": "order-7-paid",
    "timestamp": "2026-11-20T17:00:00Z",
    "correlation_id": "weekly-report-47",
}
EVENT_TYPE: Final[dict[str, Any]] = {
    "name": "order.paid",
    "description": "A customer paid an order.",
    "input_schema": {},
    "payload_schema": {"type": "object"},
}

WEBHOOK: Final[dict[str, Any]] = {
    "id": WEBHOOK_ID,
    "name": None,
    "url": "https://agent.example/callback",
    "events": ["call.finished", "call.input_required"],
    "outcomes": None,
    "upstream": None,
    "resource_uri": None,
    "tool": None,
    "call_id": None,
    "client_session_id": "session-7",
    "correlation_id": None,
    "match_correlation": False,
    "retries": "days",
    "include_result": False,
    "when": "always",
    "ordered": False,
    "rate_per_second": None,
    "description": "wakes the report agent",
    "header_names": [],
    "state": "active",
    "paused_at": None,
    "origin": "rest",
    "created_at": "2026-11-20T16:59:00.000Z",
    "updated_at": "2026-11-20T16:59:00.000Z",
    "expires_at": None,
    "last_delivery_at": None,
    "last_error": None,
    "last_error_detail": None,
    "last_error_advice": None,
    "failing_since": None,
    "paused_until": None,
}
REGISTER_CHANGE_WEBHOOK: Final[dict[str, Any]] = {
    "url": "https://agent.example/callback",
    "events": ["upstream.changed"],
    "upstream": "git",
    "resource_uri": "file:///srv/report.md",
}
REGISTER_WEBHOOK: Final[dict[str, Any]] = {
    "url": "https://agent.example/callback",
    "client_session_id": "session-7",
    "description": "wakes the report agent",
}
REGISTERED_WEBHOOK: Final[dict[str, Any]] = {
    **WEBHOOK,
    "hears": "Receives call.finished, call.input_required of your calls with client_session_id 'session-7', from now on.",
    "secret": SECRET,
}

PUT_WEBHOOK: Final[dict[str, Any]] = {
    "url": "https://agent.example/callback",
    "outcomes": ["timed_out", "unknown", "upstream_error"],
    "description": "reports failures",
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

DELIVERY: Final[dict[str, Any]] = {
    "id": DELIVERY_ID,
    "webhook_id": WEBHOOK_ID,
    "kind": "event",
    "event_id": EVENT_ID,
    "message_id": EVENT_ID,
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
    "detail": None,
    "advice": "The receiver failed; look at its log.",
}

STREAM: Final = (
    f"retry: 2000\n\nid: {CURSOR}\nevent: call.finished\ndata: {json.dumps(EVENT)}\n\nid: {CURSOR}\n: still here\n\n"
)

UPSTREAM: Final[dict[str, Any]] = {
    "name": "git",
    "configured_name": "",
    "transport": "stdio",
    "state": "ready",
    "state_since": "2026-11-20T16:00:00.000Z",
    "protocol_version": "2025-11-25",
    "driver": "plain",
    "last_error": None,
    "advice": None,
    "error_output": None,
    "intake": "open",
    "login": {"state": "none", "owner": None, "scope": None, "expires_at": None, "login_url": None},
    "calls_in_flight": 1,
    "calls_waiting": 0,
    "queued_calls": 0,
    "connections": 1,
    "signed_in_owners": None,
    "max_concurrent": 16,
    "isolation": "shared",
    "checks_arguments": True,
    "faults": {"repaired": 2},
}
HOSTED_UPSTREAM: Final[dict[str, Any]] = {
    **UPSTREAM,
    "name": "tickets",
    "transport": "http",
    "login": {
        "state": "signed_in",
        "owner": "principal",
        "scope": "tickets:read",
        "expires_at": "2026-11-20T18:00:00.000Z",
        "login_url": "https://ringback.example.com/login/tickets",
    },
}
STARTED_LOGIN: Final[dict[str, Any]] = {
    "login_id": "login_01K8ZQ4M0X5V7T9B2N6C3D8F1G",
    "upstream": "tickets",
    "owner": "principal",
    "authorization_url": "https://login.example.com/authorize?response_type=code&client_id=ringback&state=…",
    "redirect_uri": "https://app.example.com/signed-in",
    "scope": "tickets:read",
    "expires_at": "2026-11-20T17:10:00.000Z",
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

CHALLENGE: Final = "oMLUZ6mA6p9lMicMFs6KvtHZnZ1XqjWc0bq2oKzXj8k="
JWK_SET: Final[dict[str, Any]] = {
    "keys": [
        {
            "kty": "OKP",
            "crv": "Ed25519",
            "x": "1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4",
            "kid": "rEltOPXl-8jZfn0NbO5yMzHDi5e-WdjzkrFUUcp6oIE",
            "use": "sig",
            "alg": "EdDSA",
        }
    ]
}

STARTED_CALL: Final[dict[str, Any]] = {
    "call_id": CALL_ID,
    "call": WORKING_CALL,
    "resume_token": RESUME_TOKEN,
    "webhooks": [
        {
            "id": WEBHOOK_ID,
            "state": "active",
            "paused_at": None,
            "url": "https://agent.example/callback",
            "outcomes": None,
        },
    ],
}

DUE_NOW: Final[dict[str, Any]] = {
    "due_now": 3,
    "held": 0,
    "in_flight": 0,
    "next_attempt_at": "2026-11-20T17:02:11.000Z",
}
