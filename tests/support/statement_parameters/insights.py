"""Parameters of the statements of the read models."""

from typing import Final

from tests.support.filled_database import FUTURE, NOW
from tests.support.statement_parameters.shape import StatementParameters

INSIGHT_PARAMETERS: Final[StatementParameters] = {
    "insights": {
        "lock": [{}],
        "positions": [{}],
        "save_positions": [{"positions": "{}"}],
        "starts": [{"after": "", "until_id": None}, {"after": "call_rare", "until_id": "call_z"}],
        "ends": [
            {"instant": 0, "after_principal": "", "after_seq": 0, "until": None},
            {"instant": NOW, "after_principal": "alice", "after_seq": 1, "until": FUTURE},
        ],
        "deliveries": [{"instant": 0, "after": "", "until": None}, {"instant": NOW, "after": "dlv", "until": FUTURE}],
        "attempts": [{"after": "", "until_id": None}],
        "erased": [{"principals": '["alice", "dave"]', "since": FUTURE}],
        "hours_of_keys": [{"keys": f'[["alice", "", {NOW}]]'}],
        "save_hour": [{"upstream": "", "hour": NOW, "counts": "{}"}],
        "hours": [{"since": 0, "until": NOW}],
        "hours_of_upstreams": [{"upstreams": '["busy", "rare"]', "since": 0, "until": NOW}],
        "remove": [{}],
    },
    "open_work": {
        "calls_of_principal": [{}],
        "queued_calls": [{}],
        "queued_calls_of_principal": [{"principal": "carol"}, {}],
        "scheduled_calls": [{}],
        "scheduled_calls_of_principal": [{}],
        "deliveries_of_principal": [{}],
        "dead_deliveries": [{}],
        "dead_deliveries_of_principal": [{}],
        "failing_webhooks_of_principal": [{}],
    },
    "client_sessions": {
        "page": [{"counted": 500}],
        "page_of_all": [{"counted": 500}],
        "end_of_page": [{}],
        "end_of_page_of_all": [{}],
        "ends_of_session": [{"client_session_id": "crowd"}, {"client_session_id": "rare"}],
        "count_calls": [{"client_session_id": "crowd"}, {"client_session_id": "rare"}],
    },
}
