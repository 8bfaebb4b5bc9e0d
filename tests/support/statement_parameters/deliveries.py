"""Parameters of the statements about deliveries and their attempts."""

from typing import Any, Final

from ringback.domain import jsontext
from ringback.storage.rows.columns import RECORDS
from tests.support.filled_database import FUTURE, NOW
from tests.support.statement_parameters.shape import StatementParameters
from tests.support.statement_parameters.webhooks import CROWD_PARAMETERS

NO_DELIVERIES: Final = jsontext.dumps(["dlv_wh_rare-pending", "dlv_none"]).decode()
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
    **dict.fromkeys(
        ["order_key", "lease_owner", "lease_token", "lease_until", "last_category", "finished_at", "traceparent"]
    ),
}
ENDED: Final = {"webhook_id": "wh_crowd", "state": "dead", "until": FUTURE, "before": "dlv_~", "category": None}


def _new_delivery(state: str) -> list[Any]:
    """A delivery in the order in which an insert reads its columns."""
    values = A_DELIVERY | {"principal": "alice", "state": state, "id": f"dlv_new-{state}", "event_id": f"evt_{state}"}
    return [values[name] for name in RECORDS.delivery.names if name != "body"]


DELIVERY_PARAMETERS: Final[StatementParameters] = {
    "deliveries": {
        "insert": [{"rows": jsontext.dumps([_new_delivery("held"), _new_delivery("leased")]).decode()}],
        "insert_body": [{"id": "dlv_wh_zzz-held", "body": b"", "principal": "alice"}],
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
        "page_of_dead": [{}, {"principal": "carol"}, {"min_attempts": 1_000}, {"latest": 1}],
        "page_of_all_dead": [{}, {"min_attempts": 1_000}, {"latest": 1}],
        "end_of_page_of_all_dead": [{}],
        "page_of_dead_of_webhook": [{"webhook_id": "wh_rare"}, CROWD_PARAMETERS, CROWD_PARAMETERS | {"latest": 1}],
        "end_of_page_of_dead": [{}, {"principal": "carol"}],
        "end_of_page_of_dead_of_webhook": [{"webhook_id": "wh_rare"}, CROWD_PARAMETERS],
        "watermarks": [{"webhook_ids": '["wh_rare", "wh_crowd", "wh_zzz"]'}],
        "undelivered": [{"webhook_ids": '["wh_rare", "wh_crowd", "wh_zzz"]'}],
        "attempts": [{"delivery_id": "dlv_wh_rare-delivered"}],
        "remove": [{"bytes_max": 2_000}],
        "whole_by_ids": [{"ids": NO_DELIVERIES, "bytes_max": 1_000}],
    },
    "webhook_deliveries": {
        "latest_by_event": [
            CROWD_PARAMETERS | {"event_ids": '["evt_4", "evt_none"]'},
            {"webhook_id": "wh_rare", "event_ids": '["evt_shared"]'},
        ],
        "dead": [CROWD_PARAMETERS, {"webhook_id": "wh_rare"}],
        "end_of_dead": [CROWD_PARAMETERS, {"webhook_id": "wh_rare"}],
        "release_held": [{"webhook_id": "wh_rare"}, {"webhook_id": "wh_none"}, CROWD_PARAMETERS],
        "hold_pending": [{"webhook_id": "wh_rare"}, {"webhook_id": "wh_none"}, CROWD_PARAMETERS],
        "suspend_pending": [{"webhook_id": "wh_rare"}, {"webhook_id": "wh_none"}, CROWD_PARAMETERS],
        "count_open": [{"webhook_id": "wh_rare"}, CROWD_PARAMETERS],
        "make_due": [{"webhook_id": "wh_rare"}, {"webhook_id": "wh_none"}, CROWD_PARAMETERS],
        "count_held": [{"webhook_id": "wh_rare"}, CROWD_PARAMETERS],
        "cancel_due": [{"webhook_id": "wh_zzz"}, CROWD_PARAMETERS],
        "cancel_open": [{"webhook_id": "wh_zzz"}, CROWD_PARAMETERS],
    },
    "delivery_queue": {
        "oldest_due": [{}],
        "due_webhooks": [{}],
        "due": [{"limits": '[["wh_rare", 2]]'}, {"limits": '[["wh_crowd", 2], ["wh_none", 1]]'}],
        "due_in_order": [{"webhook_id": "wh_rare"}, CROWD_PARAMETERS],
        "due_without_key": [{"webhook_id": "wh_rare"}, CROWD_PARAMETERS],
        "lease": [{"ids": NO_DELIVERIES, "owner": "me", "token": "t", "until": FUTURE, "bytes_max": 2_000}],
        "by_ids": [{"ids": NO_DELIVERIES}],
        "apply_updates": [{"rows": '[["dlv_wh_rare-leased", "delivered", 1, 1, null, 1, "lease-me"]]'}],
        "insert_attempt": [
            {"delivery_id": "dlv_wh_rare-leased", "id": "att", "number": 1, "started_at": 1, "duration_ms": 1}
            | {"category": "ok", "status_code": 200, "excerpt": None, "detail": None}
        ],
        "give_up": [{"webhook_id": "wh_rare", "bytes_max": 2_000}, CROWD_PARAMETERS | {"bytes_max": 2_000}],
        "next_due": [{}],
    },
    "delivery_maintenance": {
        "release_expired_leases": [{}],
        "release_leases": [{"owner": "me", "own": False}],
        "release_unused_leases": [{"ids": NO_DELIVERIES, "tokens": '["tok_none"]'}],
        "give_up_held": [{"bytes_max": 2_000}],
        "pull_back": [{"due_after": FUTURE}],
        "by_ids": [{"ids": NO_DELIVERIES}],
        "webhooks_to_give_up": [{"webhook_ids": '["wh_rare", "wh_crowd", "wh_none"]'}],
        "webhooks_to_release": [{}, {"after": "wh_y"}],
        "webhooks_to_probe": [{"paused_until_max": FUTURE}, {"after": "wh_y", "paused_until_max": FUTURE}],
    },
    "upkeep": {
        "first": [{"due_after": FUTURE, "latest": FUTURE}],
        "shorten_call_leases": [{"ends_after": FUTURE, "until": FUTURE}],
        "shorten_delivery_leases": [{"ends_after": FUTURE, "until": FUTURE}],
    },
    "ended_deliveries": {
        **{
            name: [ENDED, ENDED | {"webhook_id": "wh_rare", "client_session_id": "none"}]
            for name in ("dead", "dead_of_webhook", "all", "all_of_webhook")
        },
        **{f"end_of_{name}": [ENDED] for name in ("dead", "dead_of_webhook", "all", "all_of_webhook")},
    },
}
