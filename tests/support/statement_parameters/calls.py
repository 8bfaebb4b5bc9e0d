"""Parameters of the statements about calls."""

from typing import Final

from ringback.domain import jsontext
from tests.support.filled_database import FUTURE, NOW
from tests.support.statement_parameters.shape import StatementParameters

NO_CALLS: Final = jsontext.dumps(["call_-2", "call_none"]).decode()
A_CALL: Final = {
    "id": "call_new",
    "idempotency_key": "key-new",
    "request_hash": "hash",
    "status": "working",
    "phase": "queued",
    "upstream": "busy",
    "tool": "common",
    "input_round": 0,
    "accepts_input": 0,
    "rerun_policy": "never",
    "rerun_allowed": 0,
    "cancel_requested": 0,
    "runs": 0,
    "token_version": 0,
    "argument_bytes": 4,
    "created_at": NOW,
    "updated_at": NOW,
    "deadline_at": FUTURE,
    **dict.fromkeys(
        ["outcome", "progress", "error", "result_bytes", "result_sha256", "handle", "input_requests", "input_responses"]
    ),
    **dict.fromkeys(["lease_owner", "lease_token", "lease_until", "dispatched_at", "attended_until", "finished_at"]),
    **dict.fromkeys(["not_before", "expires_at", "traceparent"]),
}
A_CHANGED_CALL: Final = A_CALL | {"id": "call_-3", "expected": "working", "held_token": None, "status": "failed"}
CALL_CHANGES: Final = [
    *("dispatched", "handle", "progress", "inputs", "parked", "queued"),
    *("cancelling", "unattended", "ended"),
]

CALL_PARAMETERS: Final[StatementParameters] = {
    "call_deliveries": {
        "cancel_superseded_progress": [{"call_ids": '["call_rare", "call_over", "call_none"]'}],
        "has_unsent": [{"call_id": "call_rare"}, {"call_id": "call_talkative"}, {"call_id": "call_over"}],
        "cancel_detached": [{"call_id": "call_rare"}, {"call_id": "call_over"}],
    },
    "call_webhooks": {
        "add": [{"call_id": "call_new", "webhook_id": "wh_crowd"}],
        "any_call": [{"webhook_id": "wh_crowd"}, {"webhook_id": "wh_none"}],
        "naming_calls": [{"webhook_id": "wh_crowd", "call_ids": NO_CALLS}],
        "same_target": [
            {"url": "https://rare.example/"},
            {"url": "https://crowd.example/"},
            {"url": "https://crowd.example/", "client_session_id": "crowd"},
        ],
    },
    "call_completions": {
        "end_many": [{"ends": "[]"}],
        "put_result": [{"call_id": "call_-3", "body": b"{}", "key_id": None}],
        "result": [{"call_id": "call_-3"}],
    },
    "call_queue": {
        "queued_upstreams": [{"upstreams": '["rare", "busy", "none"]'}],
        "queued": [
            {"upstream": "rare", "running": "{}", "limit_each": 100, "without": "[]"},
            {"upstream": "busy", "running": '{"bob": 1}', "limit_each": 100, "without": '["alice"]'},
        ],
        "lease": [{"ids": NO_CALLS, "owner": "me", "token": "t", "until": FUTURE}],
        "take_turns": [{"upstream": "busy", "principals": '["alice"]'}],
        "free_turn": [{"upstream": "busy", "principal": "alice"}, {"upstream": "rare", "principal": "alice"}],
        "leased_by_ids": [{"ids": NO_CALLS, "argument_bytes_max": 1_000}],
        "extend": [{"ids": NO_CALLS, "owner": "me", "until": FUTURE}],
        "extend_unlocked": [{"ids": NO_CALLS, "owner": "me", "until": FUTURE}],
        "lease_expired_of": [{"owner": "me"}],
        "lease_expired": [{}],
        "past_deadline": [{"grace_end": NOW, "stateless_handle": "[%"}],
        "leased": [{"owner": "me", "own": False}],
        "lock_task": [{"upstream": "git", "task_id": "task"}],
        "by_task": [{"upstream": "busy", "task_id": "none"}],
        "own_by_task": [{"upstream": "busy", "task_id": "none", "principal": "alice"}],
    },
    "calls": {
        "insert": [A_CALL],
        "insert_input": [{"id": "call_-1", "arguments": "{}", "meta": "{}", "key_id": None}],
        "get": [{"id": "call_rare"}],
        "get_whole": [{"id": "call_rare"}],
        "by_ids": [{"ids": NO_CALLS}],
        "by_idempotency_key": [{"key": "rare--1"}],
        "page": [{}, {"status": "completed", "tool": "none"}, {"upstream": "none"}],
        "page_of_all": [{}, {"status": "completed", "tool": "none"}, {"client_session_id": "none"}],
        "page_of_session": [{"client_session_id": "crowd", "tool": "none"}, {"client_session_id": "rare"}],
        "page_of_correlation": [{"correlation_id": "crowd", "tool": "none"}, {"correlation_id": "rare"}],
        "page_of_status": [{"status": "failed"}, {"status": "cancelled"}, {"status": "working", "started": False}],
        "page_of_unsuccessful": [{}, {"outcomes": '["rejected"]', "tool": "none"}, {"first_id": "call_z"}],
        "page_of_all_unsuccessful": [{}, {"outcomes": '["rejected"]', "tool": "none"}],
        "page_of_all_awaiting_input": [{}, {"tool": "none"}, {"client_session_id": "none"}],
        "page_of_rerun": [{"min_runs": 2}, {"min_runs": 9}, {"min_delivery_attempts": 2, "tool": "none"}],
        "page_of_all_rerun": [{"min_runs": 2}, {"client_session_id": "none"}],
        "page_of_retried": [{"min_delivery_attempts": 2}, {"min_delivery_attempts": 9}, {"tool": "none"}],
        "page_of_all_retried": [{"min_delivery_attempts": 2}, {"client_session_id": "none"}],
        "end_of_page_of_rerun": [{}],
        "end_of_page_of_all_rerun": [{}],
        "end_of_page_of_retried": [{}],
        "end_of_page_of_all_retried": [{}],
        "end_of_page_of_unsuccessful": [{}],
        "end_of_page_of_all_awaiting_input": [{}],
        "end_of_page_of_all_unsuccessful": [{}],
        "end_of_page": [{}],
        "end_of_page_of_all": [{}],
        "end_of_page_of_session": [{"client_session_id": "crowd"}, {"client_session_id": "rare"}],
        "end_of_page_of_correlation": [{"correlation_id": "crowd"}, {"correlation_id": "rare"}],
        "end_of_page_of_status": [{"status": "working"}, {"status": "failed"}],
        **{
            f"update_{change}": [A_CHANGED_CALL, A_CHANGED_CALL | {"held_token": "lease-me"}] for change in CALL_CHANGES
        },
        "revoke_tokens": [{"id": "call_-3"}],
    },
    "scheduled_calls": {
        "queue_due": [{}],
        "next": [{}],
    },
    "call_histories": {
        "events": [{"call_id": "call_rare"}, {"call_id": "call_none"}],
        "deliveries": [{"ids": '["call_rare", "call_over"]'}],
        "deliveries_of_event": [{"event_id": "evt_1"}, {"event_id": "evt_none", "principal": None}],
        "attempts": [{"ids": '["dlv_wh_rare-delivered-1", "dlv_none"]'}],
    },
    "call_resumes": {
        "of_calls": [{"ids": '["call_rare", "call_none"]'}],
        "add": [
            {"call_id": each, "resumed_at": NOW, "surface": "tool", "resumes": 1} for each in ("call_rare", "call_none")
        ],
    },
    "tombstones": {
        "lock_id": [{"call_id": "call_none"}],
        "insert": [
            {"call_id": "call_bury", "idempotency_key": "key-bury", "request_hash": "hash", "expired_at": NOW}
            | {"erased": 0, "task_hash": None},
        ],
        "task_of_another": [{"task_hash": "task-none"}],
        "mark_erased": [{"call_id": "call_none"}],
        "end_of_walk": [{"first": 0}],
        "mark_expired_erased": [{"first": 0, "before": NOW, "before_id": "call_~"}],
        "expired": [{"bytes_max": 2_000}, {"bytes_max": 0}],
        "delete_calls": [{"ids": '["call_rare", "call_none"]'}],
        "expire_own_webhook": [{"call_id": "call_rare", "expired_at": NOW}],
        "get": [{"call_id": "call_none", "key": "key-none"}, {"call_id": None, "key": "key-1"}],
        "remove": [{}],
    },
}
