"""Parameters of the statements about events, their logs and their types."""

from typing import Final

from tests.support.filled_database import FUTURE, NOW, PAST
from tests.support.statement_parameters.shape import FEW_ROWS, StatementParameters

AN_EVENT_TYPE: Final = {
    "name": "order.paid",
    "description": "d",
    "payload_schema": "{}",
    "created_at": NOW,
    "updated_at": NOW,
}

LATEST: Final = {"instant": FUTURE, "before_principal": "", "before_seq": 0}

EVENT_PARAMETERS: Final[StatementParameters] = {
    "event_log": {
        "head": [{}],
        "locked_head": [{}],
        "find": [{"seq": 0, "until": 100, "event_id": "evt_none"}],
        "find_external": [{"event_id": "evt_none"}],
        "id_at": [{"seq": FEW_ROWS // 2}, {"seq": FUTURE}],
        "ids_at": [{"seqs": f"[{FEW_ROWS // 2}, {FUTURE}]"}],
        "before": [{"seq": FUTURE}, {"seq": FUTURE, "name": "none"}, {"seq": FEW_ROWS // 2, "tool": "none"}],
        "end_of_before": [{"seq": FUTURE}],
        "before_of_call": [{"call_id": "call_rare", "seq": FUTURE}, {"call_id": "call_talkative", "seq": FUTURE}],
        "end_of_before_of_call": [{"call_id": "call_rare", "seq": FUTURE}],
        "owner_of_call": [{"call_id": "call_talkative"}],
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
        "different": [{}],
        "is_current": [{"event_name": "git/pushed", "topic": ""}],
        "of_upstream": [{"first_name": "git/", "end_name": "git0"}],
        "principals": [{"event_name": "git/rare", "topic": "t"}, {"event_name": "git/left", "topic": "t"}],
        "ended": [{"after_principal": "", "after_event_name": "", "after_topic": ""}],
        "remove_ended": [{"event_name": "git/pushed", "topic": ""}],
        "remove_unwanted_followings": [{}],
    },
    "event_followings": {
        "get": [{"event_name": "git/pushed", "topic": ""}],
        "save": [{"event_name": "git/pushed", "topic": "", "cursor": "1", "updated_at": NOW}],
    },
    "events": {
        "reserve_seqs": [{"count": 1, "latest": FUTURE}],
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
        "latest": [LATEST, LATEST | {"name": "none"}],
        "end_of_latest": [LATEST],
        "after_of_call": [{"call_id": "call_rare", "seq": 0, "until": FUTURE}],
        "end_of_call_scan": [{"call_id": "call_talkative", "seq": 0}, {"call_id": "call_rare", "seq": 0}],
        "remove": [{"older_than": PAST, "bytes_max": 2_000}],
        "raise_retention_floor": [{"seq": 1}],
    },
}
