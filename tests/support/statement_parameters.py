"""Parameters of every statement in sql/, for the test that counts its work (tests/unit/storage/test_statement_work.py)."""

from typing import Any, Final

from ringback.domain import jsontext
from ringback.storage.rows.columns import RECORDS
from tests.support.filled_database import FUTURE, NOW, PAST

FEW_ROWS, MANY_ROWS, MANY_ROWS_DEEP = 1_000, 20_000, 100_000
"""The numbers of rows of the two compared stores. A statement that visits every row takes thousands of steps more with many,
and some hundreds are allowed. A hundred thousand rows take 10 s of CPU to fill, so they belong to `scripts/test --deep`."""

COMMON_PARAMETERS: Final[dict[str, Any]] = {
    "principal": "alice",
    "now": NOW,
    "older_than": NOW,
    "limit": 10,
    "scan": 100,
    "before": None,
    "after": "",
    "status": None,
    "upstream": None,
    "tool": None,
    "client_session_id": None,
    "correlation_id": None,
    "state": None,
    "webhook_id": None,
    "call_id": None,
    "name": None,
    "topic": None,
}
CROWD_PARAMETERS: Final = {"webhook_id": "wh_crowd"}
NO_CALLS: Final = jsontext.dumps(["call_-2", "call_none"]).decode()
SEALING_KEYS: Final = jsontext.dumps(
    [["call.finished", 0, ""], ["call.finished", 25, "busy\x1fcrowd\x1fcrowd\x1f"], ["call.finished", 1, "none\x1f"]]
).decode()
"""Webhook filters: everything (wh_rare), only events of expired filler rows, and events that do not occur."""
NO_DELIVERIES: Final = jsontext.dumps(["dlv_wh_rare-pending", "dlv_none"]).decode()
AN_EVENT_TYPE: Final = {
    "name": "order.paid",
    "description": "d",
    "payload_schema": "{}",
    "created_at": NOW,
    "updated_at": NOW,
}
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
    "created_at": NOW,
    "updated_at": NOW,
    "deadline_at": FUTURE,
    **dict.fromkeys(
        ["outcome", "progress", "error", "result_bytes", "result_sha256", "handle", "input_requests", "input_responses"]
    ),
    **dict.fromkeys(["lease_owner", "lease_token", "lease_until", "dispatched_at", "attended_until", "finished_at"]),
    **dict.fromkeys(["not_before", "expires_at"]),
}
A_CHANGED_CALL: Final = A_CALL | {"id": "call_-3", "expected": "working", "held_token": None, "status": "failed"}
CALL_CHANGES: Final = [
    *("dispatched", "handle", "progress", "inputs", "parked", "queued"),
    *("cancelling", "unattended", "ended"),
]
A_WEBHOOK: Final = {
    "id": "wh_new",
    "url": "https://rare.example/",
    "events": "[]",
    "match_correlation": 0,
    "secrets": b"",
    "retries": "standard",
    "include_result": 0,
    "when": "always",
    "ordered": 0,
    "state": "active",
    "origin": "api",
    "created_at": NOW,
    "updated_at": NOW,
    "failures": 0,
    "openings": 0,
    "message_ids": "event",
    "counted_attempts": 0,
    "counted_failures": 0,
    **dict.fromkeys(["topic", "shown_event_name", "counted_since"]),
    **dict.fromkeys(["resource_uri", "rate_per_second", "description", "expires_at", "last_delivery_at", "last_error"]),
    **dict.fromkeys(["paused_at", "retry_steps", "last_error_detail", "topic", "shown_event_name"]),
    **dict.fromkeys(["failing_since", "paused_until", "missed_from", "outcomes", "idempotency_key", "request_hash"]),
}
A_SUBSCRIPTION: Final = {
    "event_name": "rare",
    "arguments": "{}",
    "error_profile": "sketch",
    "key_id": "key_rare",
    "ttl_ms": 1000,
    "created_at": NOW,
    "refreshed_at": NOW,
    "ended_at": None,
    "end": None,
}
A_DELIVERY: Final = {
    "id": "dlv_new",
    "webhook_id": "wh_crowd",
    "event_id": "evt_new",
    "kind": "event",
    "call_id": "call_talkative",
    "seq": 1,
    "generation": 1,
    "state": "held",
    "attempts": 0,
    "due_at": NOW,
    "give_up_at": FUTURE,
    "created_at": NOW,
    **dict.fromkeys(["order_key", "lease_owner", "lease_token", "lease_until", "last_category", "finished_at"]),
}
ENDED: Final = {"webhook_id": "wh_crowd", "state": "dead", "until": FUTURE, "category": None}


def _new_delivery(state: str) -> list[Any]:
    """A delivery in the order in which an insert reads its columns."""
    values = A_DELIVERY | {"principal": "alice", "state": state, "id": f"dlv_new-{state}", "event_id": f"evt_{state}"}
    return [values[name] for name in RECORDS.delivery.names if name != "body"]


PARAMETERS: Final[dict[str, dict[str, list[dict[str, Any]]]]] = {
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
        "end_many": [{"rows": "[]"}],
        "put_result": [{"call_id": "call_-3", "body": b"{}", "key_id": None}],
        "result": [{"call_id": "call_-3"}],
    },
    "call_queue": {
        "queued": [{"upstream": "rare"}, {"upstream": "busy"}],
        "lease": [{"ids": NO_CALLS, "owner": "me", "token": "t", "until": FUTURE}],
        "take_turns": [{"upstream": "busy", "principals": '["alice"]'}],
        "take_turn": [{"upstream": "busy", "principal": "alice"}, {"upstream": "rare", "principal": "alice"}],
        "by_ids": [{"ids": NO_CALLS}],
        "extend": [{"ids": NO_CALLS, "owner": "me", "until": FUTURE}],
        "extend_unlocked": [{"ids": NO_CALLS, "owner": "me", "until": FUTURE}],
        "lease_expired_of": [{"owner": "me"}],
        "lease_expired": [{}],
        "past_deadline": [{}],
        "leased": [{"owner": "me", "own": False}],
        "expired": [{}],
        "lock_task": [{"upstream": "git", "task_id": "task"}],
        "by_task": [{"upstream": "busy", "task_id": "none"}],
    },
    "calls": {
        "insert": [A_CALL],
        "insert_input": [{"id": "call_-1", "arguments": "{}", "meta": "{}", "key_id": None}],
        "get": [{"id": "call_rare"}],
        "by_ids": [{"ids": NO_CALLS}],
        "by_idempotency_key": [{"key": "rare--1"}],
        "page": [{}, {"status": "completed", "tool": "none"}, {"upstream": "none"}],
        "page_of_all": [{}, {"status": "completed", "tool": "none"}, {"client_session_id": "none"}],
        "page_of_session": [{"client_session_id": "crowd", "tool": "none"}, {"client_session_id": "rare"}],
        "page_of_correlation": [{"correlation_id": "crowd", "tool": "none"}, {"correlation_id": "rare"}],
        "page_of_status": [{"status": "failed"}, {"status": "cancelled"}, {"status": "working", "tool": "none"}],
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
    "catalog": {
        "all": [{}],
        "save_part": [{"upstream": "busy", "part": "tools", "body": "[]", "fetched_at": NOW}],
        "remove_other_upstreams": [{"upstreams": '["busy"]'}],
    },
    "catch_ups": {
        "get": [{"webhook_id": "wh_rare"}],
        "next": [{}, {"after": "bob"}],
        "save": [{"webhook_id": "wh_rare", "seq": 1, "delivered": 0}],
        "remove": [{"webhook_id": "wh_rare"}],
    },
    "commit_count": {
        "get": [{}],
        "set": [{"number": 1}],
    },
    "deliveries": {
        "insert": [{"rows": jsontext.dumps([_new_delivery("held"), _new_delivery("leased")]).decode()}],
        "insert_body": [{"id": "dlv_wh_zzz-held", "body": b""}],
        "get": [{"id": "dlv_wh_rare-held"}],
        "page": [{}, {"state": "held"}, {"state": "none"}],
        "page_of_all": [{}, {"state": "held"}, {"state": "none"}],
        "page_of_call": [{"call_id": "call_talkative", "state": "none"}, {"call_id": "call_rare"}],
        "page_of_webhook": [CROWD_PARAMETERS | {"state": "none"}, {"webhook_id": "wh_rare", "state": "held"}],
        "end_of_page": [{}],
        "end_of_page_of_all": [{}],
        "end_of_page_of_call": [{"call_id": "call_talkative"}, {"call_id": "call_rare"}],
        "end_of_page_of_webhook": [CROWD_PARAMETERS],
        "owner_of_call": [{"call_id": "call_talkative"}],
        "owner_of_webhook": [CROWD_PARAMETERS],
        "page_of_dead": [{}, {"principal": "carol"}],
        "page_of_dead_of_webhook": [{"webhook_id": "wh_rare"}, CROWD_PARAMETERS],
        "watermarks": [{"webhook_ids": '["wh_rare", "wh_crowd", "wh_zzz"]'}],
        "attempts": [{"delivery_id": "dlv_wh_rare-delivered"}],
        "remove": [{}],
    },
    "webhook_deliveries": {
        "latest_by_event": [CROWD_PARAMETERS | {"event_ids": '["evt_4", "evt_none"]'}],
        "dead": [CROWD_PARAMETERS, {"webhook_id": "wh_rare"}],
        "end_of_dead": [CROWD_PARAMETERS, {"webhook_id": "wh_rare"}],
        "release_held": [{"webhook_id": "wh_rare"}, {"webhook_id": "wh_none"}, CROWD_PARAMETERS],
        "hold_pending": [{"webhook_id": "wh_rare"}, {"webhook_id": "wh_none"}, CROWD_PARAMETERS],
        "suspend_pending": [{"webhook_id": "wh_rare"}, {"webhook_id": "wh_none"}, CROWD_PARAMETERS],
        "count_open": [{"webhook_id": "wh_rare"}, CROWD_PARAMETERS],
        "make_due": [{"webhook_id": "wh_rare"}, {"webhook_id": "wh_none"}, CROWD_PARAMETERS],
        "count_held": [{"webhook_id": "wh_rare"}, CROWD_PARAMETERS],
        "cancel_open": [{"webhook_id": "wh_zzz"}, CROWD_PARAMETERS],
    },
    "delivery_queue": {
        "oldest_due": [{}],
        "due_webhooks": [{}],
        "due": [{"limits": '[["wh_rare", 2]]'}, {"limits": '[["wh_crowd", 2], ["wh_none", 1]]'}],
        "due_in_order": [{"webhook_id": "wh_rare"}, CROWD_PARAMETERS],
        "due_without_key": [{"webhook_id": "wh_rare"}, CROWD_PARAMETERS],
        "lease": [{"ids": NO_DELIVERIES, "owner": "me", "token": "t", "until": FUTURE}],
        "by_ids": [{"ids": NO_DELIVERIES}],
        "apply_updates": [{"rows": '[["dlv_wh_rare-leased", "delivered", 1, 1, null, 1, "lease-me"]]'}],
        "insert_attempt": [
            {"delivery_id": "dlv_wh_rare-leased", "id": "att", "number": 1, "started_at": 1, "duration_ms": 1}
            | {"category": "ok", "status_code": 200, "excerpt": None, "detail": None}
        ],
        "give_up": [{"webhook_id": "wh_rare"}, CROWD_PARAMETERS],
        "next_due": [{}],
    },
    "delivery_maintenance": {
        "release_expired_leases": [{}],
        "release_leases": [{"owner": "me", "own": False}],
        "release_unused_leases": [{"ids": NO_DELIVERIES, "tokens": '["tok_none"]'}],
        "give_up_held": [{}],
        "by_ids": [{"ids": NO_DELIVERIES}],
        "webhooks_to_release": [{}, {"after": "wh_y"}],
        "webhooks_to_probe": [{}, {"after": "wh_y"}],
    },
    "event_log": {
        "head": [{}],
        "locked_head": [{}],
        "id_at": [{"seq": FEW_ROWS // 2}, {"seq": FUTURE}],
        "ids_at": [{"seqs": f"[{FEW_ROWS // 2}, {FUTURE}]"}],
        "last_before": [{"instant": PAST}, {"instant": NOW}, {"instant": PAST + FEW_ROWS // 2}],
    },
    "event_types": {
        "get": [{"name": "order.paid"}],
        "of_principal": [{}],
        "save": [AN_EVENT_TYPE],
        "remove": [{"name": "order.paid"}],
    },
    "event_demands": {
        "get": [{"event_name": "git/pushed", "topic": ""}],
        "save": [{"event_name": "git/pushed", "topic": "", "arguments": "{}", "polled_until": NOW, "gap_seq": 0}],
        "mark_gap": [{"event_name": "git/pushed", "topic": "", "seq": 7}],
        "count_of_principal": [{}],
        "current": [{}],
        "principals": [{"event_name": "git/pushed", "topic": ""}],
        "remove_ended": [{}],
        "remove_unwanted_followings": [{}],
    },
    "event_followings": {
        "get": [{"event_name": "git/pushed", "topic": ""}],
        "save": [{"event_name": "git/pushed", "topic": "", "cursor": "1", "updated_at": NOW}],
    },
    "ended_deliveries": {
        **{
            name: [ENDED, ENDED | {"webhook_id": "wh_rare", "client_session_id": "none"}]
            for name in ("dead", "dead_of_webhook", "all", "all_of_webhook")
        },
        **{f"end_of_{name}": [ENDED] for name in ("dead", "dead_of_webhook", "all", "all_of_webhook")},
    },
    "upstream_controls": {
        "all": [{}],
        "save": [{"upstream": "busy", "intake": "paused", "changed_at": NOW}],
        "remove": [{"upstream": "busy"}],
    },
    "events": {
        "reserve_seqs": [{"count": 1}],
        "begin_log": [{"principal": "carol", "count": 1}],
        "insert": [
            {
                "id": "evt_new",
                "name": "call.finished",
                "call_id": "call_rare",
                "seq": 1,
                "data": "{}",
                "created_at": NOW,
                "occurred_at": NOW,
                "topic": "t",
            }
            | {"principal": "carol"}
        ],
        "known_ids": [{"ids": '["evt_4", "evt_none"]', "topic": ""}],
        "after": [
            {"seq": 0, "until": 100, "name": "none"},
            {"seq": 0, "until": 100, "client_session_id": "none", "correlation_id": "none"},
        ],
        "latest": [{"instant": FUTURE}, {"instant": FUTURE, "name": "none"}],
        "end_of_latest": [{"instant": FUTURE}],
        "after_of_call": [{"call_id": "call_rare", "seq": 0, "until": FUTURE}],
        "owner_of_call": [{"call_id": "call_talkative"}],
        "end_of_call_scan": [{"call_id": "call_talkative", "seq": 0}, {"call_id": "call_rare", "seq": 0}],
        "remove": [{"older_than": PAST}],
        "raise_retention_floor": [{"seq": 1}],
    },
    "tool_aliases": {
        "all": [{}],
        "insert": [{"kind": "tool", "name": "n", "upstream": "busy", "original": "o"}],
    },
    "api_keys": {
        "insert": [
            {"id": "key_new", "name": "k", "hash": "hash-new", "prefix": "p", "scopes": "[]", "upstreams": None}
            | {"created_at": NOW, "expires_at": None, "replaced_by": None, "revoked_at": None}
        ],
        "by_id": [{"id": "key_1"}],
        "hold": [{"id": "key_1"}],
        "page": [{"before": None}],
        "page_of_principal": [{"principal": "alice", "before": None}],
        "replace": [{"id": "key_1", "replaced_by": "key_2", "expires_at": NOW}],
        "by_hash": [{"hash": "hash-1"}],
        "all": [{}],
        "revoke": [{"id": "key_1"}],
    },
    "erasures": {
        "insert": [
            {
                "id": "era_new",
                "kind": "call",
                "target": "call_1",
                "cancels": 0,
                "requested_by": "alice",
                "requested_at": NOW,
            }
            | {"head": 0, "worked_at": NOW, "is_waiting": 0, "finished_at": None, "seq": 0}
            | {"calls": 0, "deliveries": 0, "events": 0, "webhooks": 0}
        ],
        "get": [{"id": "era_1"}],
        "open_of_target": [{"kind": "call", "target": "call_1"}],
        "next": [{}],
        "update": [
            {"id": "era_1", "cancels": 0, "requested_at": NOW, "worked_at": NOW, "is_waiting": 0, "finished_at": None}
            | {"seq": 0, "calls": 0, "deliveries": 0, "events": 0, "webhooks": 0}
        ],
        "remove": [{"older_than": PAST}],
    },
    "erased_rows": {
        "calls_of_session": [{"client_session_id": "none", "until": NOW}],
        "calls_of_principal": [{"principal": "bob", "until": NOW}],
        "open_calls": [{"principal": "dave", "until": NOW}],
        "webhooks_of_session": [{"client_session_id": "none", "until": NOW}],
        "webhooks_of_principal": [{"principal": "dave", "until": NOW}],
        "webhooks_of_call": [{"call_id": "call_none"}],
        "newer_of_session": [{"client_session_id": "none", "until": NOW}],
        "newer_of_principal": [{"principal": "dave", "until": NOW}, {"until": FUTURE}],
        "last_calls": [{"principal": "bob"}, {"principal": "dave"}],
        "last_webhooks": [{"principal": "bob"}, {"principal": "dave"}],
    },
    "erased_deliveries": {
        "delete_of_call": [{"call_id": "call_none"}],
        "delete_of_webhook": [{"webhook_id": "wh_none"}],
        "delete_of_principal": [{"principal": "dave", "until": NOW}],
        "delete_of_event": [{"event_id": "evt_none"}, {"event_id": "evt_4", "principal": "dave"}],
        "first_of_event": [{"event_id": "evt_none"}],
        "delete_event_types": [{"principal": "dave", "until": NOW}],
        "first_of_call": [{"call_id": "call_none"}],
        "first_of_webhook": [{"webhook_id": "wh_none"}],
        "first_of_principal": [{"principal": "dave", "until": NOW}],
        "replace_event": [{"id": "evt_none", "seq": 1, "data": "{}"}],
        "delete_events": [{"principal": "dave", "head": 100}],
        "raise_retention_floor": [{"seq": 1}],
        "delete_keys": [{"principal": "dave", "until": NOW}],
        "delete_sessions": [{"principal": "dave", "until": NOW}],
        "delete_proofs": [{"principal": "dave", "until": NOW}],
        "overwrite_deleted": [{}],
    },
    "origin_breakers": {
        "lock_origins": [{"origins": '["https://a.example"]'}],
        "breakers": [{"origins": '["https://crowd.example:1"]'}],
        "save": [{"origin": "https://new.example", "failures": 1, "openings": 0, "paused_until": None}],
        "request_probe": [
            {"origin": each, "spacing": 15_000} for each in ("https://crowd.example:1", "https://new.example")
        ],
        "close": [{"origin": "https://crowd.example:1"}],
        "remove": [{}],
    },
    "registered_webhooks": {
        "by_name": [{"name": "rare"}, {"name": "none"}],
        "by_idempotency_key": [{"key": "rare"}, {"key": "none"}],
    },
    "scheduled_calls": {
        "queue_due": [{}],
        "next": [{}],
    },
    "scheduling_time": {
        "load": [{}],
        "save": [{}],
    },
    "sealed_values": {
        "count webhooks.secrets": [{}],
        "count bodies.body": [{}],
        "count mcp_sessions.state": [{}],
        "count inputs.arguments": [{}],
        "count results.body": [{}],
        "webhooks.secrets": [{}],
        "bodies.body": [{}],
        "mcp_sessions.state": [{}],
        "put webhooks.secrets": [{"id": "wh_rare", "sealed": b""}],
        "put bodies.body": [{"id": "dlv_wh_rare-held", "sealed": b""}],
        "put mcp_sessions.state": [{"id": "session-rare", "sealed": b""}],
    },
    "sealing_keys": {
        "all": [{}],
        "add": [{"key_id": "k", "check_value": b"check"}, {"key_id": "new", "check_value": b"check"}],
        "remove": [{"key_id": "k"}],
        "accept_loss": [{"key_id": "k"}],
        "sealed_by": [{"key_id": "k", "prefix": b"\x01\x01k"}, {"key_id": "x", "prefix": b"\x01\x01x"}],
    },
    "tombstones": {
        "insert": [
            {"call_id": "call_bury", "idempotency_key": "key-bury", "request_hash": "hash", "expired_at": NOW}
            | {"erased": 0},
        ],
        "mark_erased": [{"call_id": "call_none"}],
        "delete_call": [{"call_id": "call_rare"}],
        "expire_own_webhook": [{"call_id": "call_rare", "expired_at": NOW}],
        "get": [{"call_id": "call_none", "key": "key-none"}, {"call_id": None, "key": "key-1"}],
        "remove": [{}],
    },
    "usage": {
        "lock_usage": [{}],
        "usage": [{"principal": "carol"}, {}],
        "count_webhooks": [{"principal": "carol"}, {}],
        "calls_by_status": [{}],
        "open_deliveries": [{}],
        "failing_webhooks": [{}],
        "oldest_queued_call": [{}],
        "count_events": [{}],
    },
    "verification": {
        "save_challenge": [
            {"webhook_id": "wh_rare", "url": "https://rare.example/", "origin": "https://rare.example"}
            | {"attempts": 0, "due_at": NOW, "token": None}
        ],
        "get_challenge": [{"webhook_id": "wh_rare"}],
        "lock_due": [{}],
        "due_challenges": [{}],
        "next_due": [{}],
        "remove_challenge": [{"webhook_id": "wh_rare"}],
        "recent_of_origin": [
            {"key": "https://rare.example", "since": NOW},
            {"key": "https://crowd.example", "since": NOW},
        ],
        "recent_of_principal": [{"key": "alice", "since": NOW}, {"key": "carol", "since": NOW}],
        "record_sent": [{"origin": "https://rare.example"}],
        "record_answered": [
            {"origin": "https://rare.example"},
            {"origin": "https://crowd.example", "principal": "carol"},
        ],
        "remove_sent": [{"older_than": PAST - 1}],
        "proven_at": [{"url": "https://crowd.example/1"}],
        "save_proof": [{"url": "https://rare.example/"}],
        "remove_proofs": [{}],
    },
    "mcp_sessions": {
        "save": [
            {"id": each, "upstreams": None, "endpoint": "/mcp", "state": b"", "created_at": NOW, "expires_at": FUTURE}
            for each in ("session-new", "session-rare")
        ],
        "get": [{"id": "session-rare"}, {"id": "session-none"}],
        "count": [{"endpoint": each} for each in ("/mcp", "/mcp/rare", "/mcp/none")],
        "list_expiries": [{"endpoint": each} for each in ("/mcp", "/mcp/rare", "/mcp/none")],
        "save_state": [{"id": "session-rare", "state": b""}],
        "extend": [{"ids": '["session-rare", "session-none"]', "expires_at": FUTURE}],
        "delete": [{"id": "session-rare"}],
        "remove_expired": [{}],
    },
    "leaders": {
        "acquire": [{"duty": "watch", "owner": "me", "until": FUTURE}],
        "release": [{"duty": "watch", "owner": "me"}],
    },
    "subscriptions": {
        "get": [{"id": "sub_rare"}, {"id": "sub_none"}],
        "save": [
            A_SUBSCRIPTION | {"id": "sub_new"},
            A_SUBSCRIPTION | {"id": "sub_rare"},
            A_SUBSCRIPTION | {"id": "sub_rare", "ended_at": NOW, "end": "unsubscribed"},
        ],
        "count_live": [{}, {"principal": "nobody"}],
        "keys": [{}, {"after": "key_crowd"}],
        "of_key": [{"key_id": "key_rare"}, {"key_id": "key_none"}],
        "of_event": [{"event_name": "rare"}, {"event_name": "none"}],
        "remove_ended": [{"older_than": PAST}],
    },
    "webhook_rates": {
        "lock": [{"webhook_id": "wh_rare"}],
        "save": [{"webhook_id": "wh_rare", "full_at": NOW}],
    },
    "change_subscriptions": {
        "all": [{}],
    },
    "webhooks": {
        "insert": [A_WEBHOOK],
        "get": [{"id": "wh_rare"}],
        "by_ids": [{"ids": '["wh_rare"]'}],
        "page": [{}],
        "page_of_all": [{}],
        "page_of_failing": [{}, {"principal": "carol"}],
        "page_of_failing_of_all": [{}],
        "fields_in_use": [{"event_names": '["call.finished", "call.failed"]'}],
        "matching": [{"keys": SEALING_KEYS, "catching_up": 1}, {"keys": SEALING_KEYS, "catching_up": 0}],
        "of_calls": [{"call_ids": '["call_rare", "call_none"]', "catching_up": 0}],
        "update_settings": [A_WEBHOOK | {"id": "wh_rare", "events": '["call.failed"]'}],
        "update_secrets": [A_WEBHOOK | {"id": "wh_rare"}],
        "update_state": [A_WEBHOOK | {"id": "wh_rare", "state": "disabled"}],
        "update_health": [A_WEBHOOK | {"id": "wh_rare"}],
        "update_missed": [A_WEBHOOK | {"id": "wh_rare"}],
        "delete": [{"id": "wh_rare"}],
        "cancel_open_deliveries": [{"id": "wh_rare"}, {"id": "wh_zzz"}],
        "expired": [{"after_instant": 0, "after_id": ""}],
    },
    "write_probe": {
        "write": [{"bytes": 4096}],
        "file": [{}],
    },
}
"""Each statement's parameters, with which it finds a few rows among the filler rows. A statement with `scan` visits that many
filler rows at most."""

FULL_SCAN_STATEMENTS: Final = {
    "catalog.all": "a few rows an upstream, read at start",
    "catalog.remove_other_upstreams": "a few rows an upstream, once at start",
    "event_demands.current": "what principals want of upstreams now; each principal has a bounded number",
    "event_demands.remove_ended": "the same, and those that ended within the last minute",
    "event_demands.remove_unwanted_followings": "a row for each different demand",
    "tool_aliases.all": "the few names that are too long or have odd characters",
    "api_keys.all": "an operator's list of keys",
    "upstream_controls.all": "a row for each upstream that is paused or drained now",
    "sealing_keys.sealed_by": "once at start for a key that left the ring, up to the first row that it sealed",
    "usage.calls_by_status": "five rows a principal, for metrics, in a thread of the pool",
    "usage.count_events": "a row a principal, for metrics, in a thread of the pool",
}
"""Statements that return all rows that they read."""
