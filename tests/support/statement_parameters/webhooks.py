"""Parameters of the statements about webhooks, their origins, proofs and subscriptions."""

from typing import Final

from ringback.domain import jsontext
from tests.support.filled_database import NOW, PAST
from tests.support.statement_parameters.shape import StatementParameters

CROWD_PARAMETERS: Final = {"webhook_id": "wh_crowd"}
SEALING_KEYS: Final = jsontext.dumps(
    [["call.finished", 0, ""], ["call.finished", 25, "busy\x1fcrowd\x1fcrowd\x1f"], ["call.finished", 1, "none\x1f"]]
).decode()
"""Webhook filters: everything (wh_rare), only events of expired filler rows, and events that do not occur."""
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
    "alerted_percent": 0,
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
    "began_after": 0,
    "ended_at": None,
    "end": None,
}

WEBHOOK_PARAMETERS: Final[StatementParameters] = {
    "catch_ups": {
        "get": [{"webhook_id": "wh_rare"}],
        "next": [{}, {"after": "bob"}],
        "next_of_principal": [{}, {"after": "wh_crowd"}],
        "save": [{"webhook_id": "wh_rare", "seq": 1, "delivered": 0}],
        "remove": [{"webhook_id": "wh_rare"}],
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
        "recent_of_pair": [{"origin": "https://rare.example", "principal": "carol", "since": NOW}],
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
        "event_names": [{}, {"after": "crowd"}],
        "of_event": [{"event_name": "rare"}, {"event_name": "none"}],
        "remove_ended": [{"older_than": PAST}],
    },
    "webhook_rates": {
        "add": [{"webhook_id": "wh_rare"}],
        "lock": [{"webhook_id": "wh_rare"}],
        "save": [{"webhook_id": "wh_rare", "full_at": NOW}],
    },
    "change_subscriptions": {
        "all": [{}],
        "has": [
            {"upstream": "watched", "resource_uri": "book://crowd", "topic": "crowd"},
            {"upstream": "watched", "resource_uri": "", "topic": "left"},
            {"upstream": "rare", "resource_uri": "book://rare", "topic": "rare"},
        ],
        "of_subjects": [{"subjects": '[["rare", "book://rare", "rare"], ["rare", "", "left"]]'}],
        "watched_resources": [{"upstream": "watched"}, {"upstream": "rare"}],
    },
    "webhooks": {
        "insert": [A_WEBHOOK],
        "get": [{"id": "wh_rare"}],
        "by_ids": [{"ids": '["wh_rare"]'}],
        "page": [{}],
        "page_of_all": [{}],
        "page_of_failing": [{}, {"principal": "carol"}],
        "page_of_failing_of_all": [{}],
        "page_of_state": [{"state": "disabled", "health": None}],
        "page_of_state_of_all": [{"state": "disabled", "health": None}],
        "end_of_page_of_state": [{}],
        "end_of_page_of_state_of_all": [{}],
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
}
