"""Examples of the callbacks in the OpenAPI document, about the call of `examples`."""

from typing import Any, Final

from ringback.schemas.examples import (
    CALL_ID,
    CURSOR,
    EVENT,
    FINISHED_DATA,
    OTHER_WEBHOOK_ID,
    RESUME_TOKEN,
    WEBHOOK_ID,
    WORKING_CALL,
)

_RECEIVER_DATA: Final[dict[str, Any]] = {
    "subscription_id": WEBHOOK_ID,
    "webhook_correlation_id": "inbox-3",
    "resume_token": RESUME_TOKEN,
    "resume_url": "https://ringback.example/v1/resume",
    "resource_uri": f"ringback://calls/{CALL_ID}",
    "mcp_url": "https://ringback.example/mcp",
}
_COMMON_CALL_DATA: Final[dict[str, Any]] = {
    name: FINISHED_DATA[name]
    for name in ("call_id", "upstream", "tool", "correlation_id", "client_session_id", "created_at")
}
FINISHED_CALLBACK: Final[dict[str, Any]] = {
    **EVENT,
    "data": {**FINISHED_DATA, **_RECEIVER_DATA, "answered_inline": False},
}
FAILED_CALLBACK: Final[dict[str, Any]] = {
    **FINISHED_CALLBACK,
    "data": {
        **FINISHED_CALLBACK["data"],
        "status": "failed",
        "outcome": "timed_out",
        "error": {
            "code": "timed_out",
            "message": "The call's deadline passed before the tool returned. The tool may have run.",
        },
        "result_bytes": None,
        "result_sha256": None,
    },
}
INPUT_REQUIRED_CALLBACK: Final[dict[str, Any]] = {
    **EVENT,
    "name": "call.input_required",
    "data": {**_COMMON_CALL_DATA, "status": "input_required", "input_keys": ["r1.1"], **_RECEIVER_DATA},
}
PROGRESS_CALLBACK: Final[dict[str, Any]] = {
    **EVENT,
    "name": "call.progress",
    "data": {**_COMMON_CALL_DATA, "status": "working", "progress": WORKING_CALL["progress"], **_RECEIVER_DATA},
}

TEST_CALLBACK: Final[dict[str, Any]] = {
    **EVENT,
    "name": "webhook.test",
    "data": {
        "webhook_id": WEBHOOK_ID,
        "client_session_id": "session-7",
        "subscription_id": WEBHOOK_ID,
        "webhook_correlation_id": "inbox-3",
    },
}
_WEBHOOK_DATA: Final[dict[str, Any]] = {
    "webhook_id": WEBHOOK_ID,
    "subscription_id": OTHER_WEBHOOK_ID,
    "webhook_correlation_id": "inbox-3",
}
FAILING_CALLBACK: Final[dict[str, Any]] = {
    **EVENT,
    "name": "webhook.failing",
    "data": {
        **_WEBHOOK_DATA,
        "state": "active",
        "last_error": "timeout",
        "failing_since": "2026-11-16T17:00:00.000Z",
        "percent": 70,
        "suspends_at": "2026-11-20T17:00:00.000Z",
        "advice": "Answer with 2xx within 10 seconds, and do the work afterwards.",
    },
}
SUSPENDED_CALLBACK: Final[dict[str, Any]] = {
    **EVENT,
    "name": "webhook.suspended",
    "data": {
        **_WEBHOOK_DATA,
        "state": "suspended",
        "last_error": "timeout",
        "failing_since": "2026-11-16T17:00:00.000Z",
    },
}
RECOVERED_CALLBACK: Final[dict[str, Any]] = {
    **EVENT,
    "name": "webhook.recovered",
    "data": {**_WEBHOOK_DATA, "state": "active", "last_error": None, "failing_since": None},
}
UPSTREAM_CHANGED_CALLBACK: Final[dict[str, Any]] = {
    **EVENT,
    "name": "upstream.changed",
    "data": {
        "upstream": "git",
        "change": "resource",
        "uri": "file:///srv/report.md",
        "subscription_id": WEBHOOK_ID,
        "webhook_correlation_id": "inbox-3",
    },
}
PUBLISHED_CALLBACK: Final[dict[str, Any]] = {
    **EVENT,
    "name": "order.paid",
    "data": {"order_id": "o1", "subscription_id": WEBHOOK_ID, "webhook_correlation_id": "inbox-3"},
}
GAP: Final[dict[str, Any]] = {"type": "gap", "cursor": CURSOR}
