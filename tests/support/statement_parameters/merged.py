"""Parameters of the statements that PostgreSQL has in the place of several."""

from typing import Any, Final

from ringback.domain import jsontext
from ringback.storage.rows.columns import RECORDS
from tests.support.filled_database import FUTURE, NOW
from tests.support.statement_parameters.calls import A_CALL
from tests.support.statement_parameters.deliveries import A_DELIVERY
from tests.support.statement_parameters.shape import FEW_ROWS, StatementParameters


def _json(*values: Any) -> str:
    return jsontext.dumps(values).decode()


def _happened(principal: str, seq: int, name: str, call_id: str | None, *, superseding: bool = True) -> list[Any]:
    """An event as `find_receivers` reads it."""
    return [principal, seq, name, "rare", "rare", call_id, "rare", "rare", None, None, ["result"], superseding]


_DELIVERY: Final = A_DELIVERY | {"principal": "alice", "state": "leased", "id": "dlv_new-leased", "event_id": "evt_new"}
_EVENT: Final = {
    "event_ids": '["evt_new"]',
    "event_principals": '["carol"]',
    "event_seqs": "[1]",
    "event_names": '["call.finished"]',
    "event_calls": '["call_rare"]',
    "event_data": '["{}"]',
    "event_times": f"[{NOW}]",
    **dict.fromkeys(
        ["event_sessions", "event_correlations", "event_upstreams", "event_tools", "event_topics"], '["a"]'
    ),
    "event_occurrences": f"[{NOW}]",
}
_END: Final = [
    *("call_-3", "completed", "ended", "result", None, None, 2, "hash", None, None, None, False, NOW, NOW, FUTURE),
    *("working", None),
]

_FINISHED: Final = {"events": _json(_happened("alice", FEW_ROWS, "call.finished", "call_rare")[:-1])}
_LEASE: Final = {"owner": "me", "token": "t", "until": FUTURE}
_QUEUED: Final = _LEASE | {"argument_bytes_max": 1_000, "limit_each": 100}

MERGED_PARAMETERS: Final[StatementParameters] = {
    "calls": {"insert_whole": [A_CALL | {"arguments": "{}", "meta": "{}", "key_id": None}]},
    "call_queue": {
        "take_turn": [{"upstream": "busy", "principal": "alice"}, {"upstream": "rare", "principal": "alice"}],
        "lease_queued": [
            _QUEUED | {"upstream": "rare", "running_principals": "[]", "running_calls": "[]", "without": "[]"},
            _QUEUED
            | {
                "upstream": "busy",
                "running_principals": '["bob"]',
                "running_calls": "[1]",
                "without": '["alice"]',
            },
        ],
    },
    "deliveries": {"insert_bodies": [{"ids": '["dlv_wh_zzz-held"]', "bodies": '["body"]', "principals": '["alice"]'}]},
    "delivery_queue": {
        "lease_whole": [_LEASE | {"bytes_max": 2_000, "ids": '["dlv_wh_rare-pending", "dlv_none"]'}],
        "record_attempts": [
            {
                "rows": '[["dlv_wh_rare-leased", "delivered", 1, 1, null, 1, "lease-me"]]',
                "attempts": '[["att_new", "dlv_wh_rare-leased", 1, 1, 1, "delivered", 200, null, null]]',
            }
        ],
    },
    "write_probe": {"use_sequence": [{}]},
    "webhooks": {"candidates": [_FINISHED | {"catching_up": each} for each in (0, 1)]},
    "log_appends": {
        "lock_leased_calls": [
            {
                "ids": '["call_-3", "call_rare", "call_none"]',
                "leases": '["call_-3 lease", "call_rare lease-me"]',
                "latest": FUTURE,
            }
        ],
        "reserve_places": [{"principals": '["alice", "carol"]', "counts": '["2", "1"]', "latest": FUTURE}],
        "find_receivers": [
            {"events": _json(_happened("alice", FEW_ROWS, "call.finished", "call_rare")), "catching_up": 0},
            {
                "events": _json(
                    _happened("alice", FEW_ROWS, "call.finished", "call_over"),
                    _happened("alice", FEW_ROWS + 1, "call.progress", "call_none"),
                    _happened("carol", 1, "upstream.changed", None, superseding=False),
                ),
                "catching_up": 1,
            },
        ],
        "write": [
            {
                "ends": _json(_END),
                "result_calls": '["call_-3"]',
                "result_bodies": '["{}"]',
                "result_keys": "[null]",
                **_EVENT,
                "deliveries": _json([_DELIVERY[name] for name in RECORDS.delivery.names if name != "body"]),
                "body_deliveries": '["dlv_new-leased"]',
                "bodies": '["body"]',
                "body_principals": '["alice"]',
            }
        ],
    },
}
