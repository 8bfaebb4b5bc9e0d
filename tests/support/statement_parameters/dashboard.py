"""Parameters of the statements about the dashboard: sign-ins, portal links, the audit log."""

from typing import Final

from tests.support.filled_database import FUTURE, NOW, PAST
from tests.support.statement_parameters.shape import StatementParameters

_NEWEST: Final = 2**63 - 1

DASHBOARD_PARAMETERS: Final[StatementParameters] = {
    "sign_ins": {
        "insert": [
            {"id": "signin_new", "secret_hash": "new", "key_id": None, "scopes": "[]", "upstreams": None}
            | {"created_at": NOW, "expires_at": FUTURE}
        ],
        "by_hash": [{"secret_hash": "secret-rare"}, {"secret_hash": "none"}],
        "delete": [{"secret_hash": "none"}],
        "remove_oldest": [{"principal": "carol", "sign_ins_kept": 1}],
        "remove_expired": [{}],
    },
    "portal_links": {
        "insert": [
            {"id": "link_new", "secret_hash": "new", "client_session_id": "s", "upstreams": None, "created_by": "alice"}
            | {"key_id": None, "created_at": NOW, "expires_at": FUTURE}
        ],
        "by_id": [{"id": "link_rare"}],
        "by_hash": [{"secret_hash": "secret-rare"}, {"secret_hash": "none"}],
        "page": [{}],
        "page_of_principal": [{"principal": each} for each in ("alice", "carol", "dave")],
        "count": [{"principal": each} for each in ("alice", "carol")],
        "delete": [{"id": "none"}],
        "delete_of_session": [
            {"principal": each, "client_session_id": "none", "until": NOW} for each in ("carol", "dave")
        ],
        "remove_expired": [{}],
    },
    "audit_entries": {
        "append": [
            {"at": NOW, "key_id": None, "surface": "rest", "operation": "test_webhook", "target": "wh_rare"}
            | {"owner": "carol", "detail": None}
        ],
        "page": [{"before_seq": _NEWEST}],
        "page_of_owner": [{"owner": each, "before_seq": _NEWEST} for each in ("alice", "carol", "dave")],
        "remove_beyond": [{"owner": each, "entries_max": 100} for each in ("alice", "carol")],
        "remove": [{"older_than": PAST}],
    },
}
