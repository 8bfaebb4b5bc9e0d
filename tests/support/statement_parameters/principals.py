"""Parameters of the statements about principals: keys, usage, sessions, erasures."""

from typing import Final

from tests.support.filled_database import FUTURE, NOW, PAST
from tests.support.statement_parameters.shape import StatementParameters

PRINCIPAL_PARAMETERS: Final[StatementParameters] = {
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
    "key_owners": {"is_single": [{}, {"now": FUTURE}]},
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
        "next": [{"after": ""}],
        "next_waiting": [{"after": "", "worked_before": FUTURE}],
        "update": [
            {"id": "era_1", "cancels": 0, "requested_at": NOW, "worked_at": NOW, "is_waiting": 0, "finished_at": None}
            | {"head": 0, "seq": 0, "calls": 0, "deliveries": 0, "events": 0, "webhooks": 0}
        ],
        "remove": [{"older_than": PAST}],
    },
    "erased_rows": {
        "calls_of_session": [{"client_session_id": "none", "until": NOW, "bytes_max": 2_000}],
        "calls_of_principal": [{"principal": "bob", "until": NOW, "bytes_max": 2_000}],
        "open_calls": [{"principal": "dave", "until": NOW}],
        "webhooks_of_session": [{"client_session_id": "none", "until": NOW}],
        "webhooks_of_principal": [{"principal": "dave", "until": NOW}],
        "webhooks_of_calls": [{"call_ids": '["call_none", "call_rare"]'}],
        "events_of_calls": [{"call_ids": '["call_none", "call_rare"]', "seq": 0}],
        "newer_of_session": [{"client_session_id": "none", "until": NOW}],
        "newer_of_principal": [{"principal": "dave", "until": NOW, "head": 0}, {"until": FUTURE, "head": FUTURE}],
        "last_calls": [{"principal": "bob"}, {"principal": "dave"}],
        "last_webhooks": [{"principal": "bob"}, {"principal": "dave"}],
        "last_subscriptions": [{"principal": "bob"}, {"principal": "dave"}],
        "last_tokens": [{"principal": "bob"}, {"principal": "dave"}],
        "last_calls_of_session": [{"client_session_id": "none"}],
        "last_webhooks_of_session": [{"client_session_id": "none"}],
        "last_subscriptions_of_session": [{"client_session_id": "none"}],
        "delete_turns": [{"principal": "dave"}],
        "delete_breakers": [{"principal": "dave", "limit": 2}],
        "delete_call_counts": [{"principal": "dave"}],
        "delete_subscription_counts": [{"principal": "dave"}],
    },
    "erased_deliveries": {
        "delete_of_calls": [{"call_ids": '["call_none", "call_zzz"]', "bytes_max": 2_000}],
        "delete_of_webhooks": [{"webhook_ids": '["wh_none", "wh_zzz"]', "bytes_max": 2_000}],
        "delete_of_principal": [{"principal": "dave", "until": NOW, "bytes_max": 2_000}],
        "delete_of_event": [
            {"event_id": "evt_none", "bytes_max": 2_000},
            {"event_id": "evt_4", "principal": "dave", "bytes_max": 2_000},
        ],
        "first_of_event": [{"event_id": "evt_none"}],
        "delete_event_types": [{"principal": "dave", "until": NOW}],
        "first_of_calls": [{"call_ids": '["call_none", "call_zzz"]'}],
        "first_of_webhooks": [{"webhook_ids": '["wh_none", "wh_zzz"]'}],
        "find_identity": [{"principal": "dave", "until": NOW}],
        "first_of_principal": [{"principal": "dave", "until": NOW}],
        "replace_event": [{"id": "evt_none", "seq": 1, "data": "{}"}],
        "delete_events": [{"principal": "dave", "head": 100, "bytes_max": 2_000}],
        "raise_retention_floor": [{"seq": 1}],
        "delete_keys": [{"principal": "dave", "until": NOW}],
        "delete_sign_ins": [{"principal": "dave", "until": NOW}],
        "delete_portal_links": [{"principal": "dave", "until": NOW}],
        "delete_sessions": [{"principal": "dave", "until": NOW}],
        "delete_logins": [{"principal": "dave", "until": NOW}],
        "delete_tokens": [{"principal": "dave", "until": NOW}],
        "delete_catalogs": [{"principal": "dave"}],
        "forget_logged_in_by": [{"principal": "dave"}],
        "delete_proofs": [{"principal": "dave", "until": NOW}],
        "delete_hours": [{"principal": "dave", "until": NOW}],
        "overwrite_deleted": [{}],
    },
    "usage": {
        "lock_usage": [{}],
        "usage": [{"principal": "carol"}, {}],
        "log_usage": [{"principal": "carol"}, {}],
        "count_webhooks": [{"principal": "carol"}, {}],
        "calls_by_status": [{}],
        "open_deliveries": [{}],
        "failing_webhooks": [{}],
        "oldest_queued_call": [{}],
        "queued_calls": [{}],
        "queued_calls_of_principal": [{"upstreams": '["busy", "rare", "none"]'}],
        "first_lease_end": [{}],
        "count_events": [{}],
        "count_subscriptions": [{}],
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
}
