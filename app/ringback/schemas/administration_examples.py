"""Values of the examples about keys, portal links, the audit log, erasures and insights."""

from typing import Any, Final

from ringback.schemas.examples import API_KEY, CALL_ID, ERASURE_ID, KEY_ID, NEW_KEY_ID, PORTAL_LINK_ID, WEBHOOK_ID

KEY: Final[dict[str, Any]] = {
    "id": KEY_ID,
    "principal": "reports-team",
    "name": "reports agent",
    "prefix": API_KEY[:12],
    "scopes": ["calls", "read", "webhooks"],
    "upstreams": ["git"],
    "created_at": "2026-11-20T17:00:00.000Z",
    "expires_at": "2027-02-18T17:00:00.000Z",
    "replaced_by": None,
    "revoked_at": None,
}
ROTATED_KEY: Final[dict[str, Any]] = {
    **KEY,
    "id": NEW_KEY_ID,
    "key": API_KEY,
    "replaces": KEY_ID,
    "overlap_ends_at": "2026-11-21T17:00:00.000Z",
}
SKIPPED_UPSTREAM: Final[dict[str, Any]] = {
    "name": "tickets",
    "configured_name": "Tickets",
    "reason": "missing_variable",
    "advice": "'url' needs the environment variable TICKETS_URL, which is not set; set it in the "
    "service's environment before starting: .env gives only RINGBACK_ settings.",
}
PORTAL_LINK: Final[dict[str, Any]] = {
    "id": PORTAL_LINK_ID,
    "principal": "reports-team",
    "client_session_id": "session-7",
    "created_by": "reports-team",
    "key_id": KEY_ID,
    "created_at": "2026-11-20T17:00:00.000Z",
    "expires_at": "2026-11-20T18:00:00.000Z",
}
PORTAL_URL: Final = "https://ringback.example.com/ui/portal?link=EXAMPLEnotarealsecret0000000000000000000000"
AUDIT_ENTRY: Final[dict[str, Any]] = {
    "seq": 17,
    "at": "2026-11-20T17:00:00.000Z",
    "principal": "reports-team",
    "key_id": KEY_ID,
    "surface": "rest",
    "operation": "change_webhook",
    "target": WEBHOOK_ID,
    "owner": "reports-team",
    "detail": "url, state=active",
}
ERASURE: Final[dict[str, Any]] = {
    "id": ERASURE_ID,
    "kind": "session",
    "target": "session-7",
    "state": "finished",
    "requested_at": "2026-11-20T18:00:00.000Z",
    "finished_at": "2026-11-20T18:00:00.040Z",
    "calls": 3,
    "deliveries": 4,
    "events": 5,
    "webhooks": 1,
}
LATENCY: Final[dict[str, Any]] = {"count": 12, "p50_ms": 1585, "p95_ms": 6310, "p99_ms": 10000}
INSIGHTS: Final[dict[str, Any]] = {
    "since": "2026-11-20T17:00:00.000Z",
    "until": "2026-11-20T17:42:00.000Z",
    "is_complete": True,
    "open_calls": {"working": 3, "input_required": 1},
    "queued_calls": 0,
    "scheduled_calls": 0,
    "open_deliveries": {"held": 0, "pending": 2, "leased": 0},
    "dead_deliveries": 1,
    "failing_webhooks": 1,
    "call_duration": LATENCY,
    "delivery_latency": LATENCY,
    "hours": [
        {
            "hour": "2026-11-20T17:00:00.000Z",
            "calls_started": 14,
            "calls_by_outcome": {"result": 11, "tool_error": 1},
            "call_duration": LATENCY,
            "attempts_by_category": {"delivered": 12, "http_5xx": 3},
            "deliveries_delivered": 12,
            "deliveries_dead": 1,
            "delivery_latency": LATENCY,
            "queued_calls_max": 0,
            "pending_deliveries_max": 0,
        }
    ],
    "upstreams": [
        {
            "upstream": "git",
            "calls_started": 14,
            "calls_by_outcome": {"result": 11, "tool_error": 1},
            "call_duration": LATENCY,
        }
    ],
    "paused_upstreams": [],
    "leaves_out_others": False,
}
SESSION: Final[dict[str, Any]] = {
    "client_session_id": "session-7",
    "first_call_at": "2026-11-20T16:58:00.000Z",
    "last_call_at": "2026-11-20T17:00:00.000Z",
    "last_call_id": CALL_ID,
}
