"""Parameters of the statements about logins to upstreams."""

from typing import Final

from tests.support.filled_database import FUTURE, NOW, PAST
from tests.support.statement_parameters.shape import StatementParameters

_TOKENS: Final = {"version": 2, "issuer": "i", "resource": "r", "scope": None, "required_scope": None} | {
    "obtained_at": NOW,
    "expires_at": None,
    "logged_in_by": "alice",
    "secrets": b"",
}
_OWNER_RANGES: Final = [
    {"upstream": "rare", "first_owner": first, "last_owner": last} for first, last in (("", ""), ("\x01", "\U0010ffff"))
]

LOGIN_PARAMETERS: Final[StatementParameters] = {
    "upstream_logins": {
        "insert": [
            {"id": "login_new", "state_hash": "new", "upstream": "rare", "owner": "", "key_id": None, "request": b""}
            | {"created_at": PAST, "expires_at": FUTURE}
        ],
        "get": [{"id": "login_rare"}, {"id": "login_none"}],
        "by_state": [{"state_hash": "state-rare"}, {"state_hash": "state-none"}],
        "delete": [{"id": "login_none"}],
        "count": [{"principal": "alice"}, {"principal": "carol"}, {"principal": "dave"}],
        "remove_expired": [{}],
    },
    "upstream_tokens": {
        "insert": [
            {"id": "rare/new", "upstream": "rare", "owner": "new", **_TOKENS},
            {"id": "rare/alice", "upstream": "rare", "owner": "alice", **_TOKENS},
        ],
        "replace": [{"id": each, "expected_version": 1, **_TOKENS} for each in ("rare/alice", "rare/none")],
        "get": [{"id": "rare/alice"}, {"id": "rare/none"}],
        "many": [{"ids": '["rare/alice", "rare/none"]'}],
        "delete": [{"id": "rare/none"}],
        "count_owners": [{"upstream": "rare"}, {"upstream": "none"}],
        "all_owned": [{"owner": "dave"}],
    },
    "oauth_clients": {
        "get": [{"id": "https://rare.example https://us.example"}, {"id": "none"}],
        "any": [{"id": "https://rare.example https://us.example"}, {"id": "none"}],
        "save": [
            {"id": each, "issuer": "i", "redirect_uri": "r", "client": b"", "created_at": NOW, "expires_at": None}
            for each in ("https://rare.example https://us.example", "new")
        ],
        "remove_oldest": [{"clients_max": 1_000_000}],
        "delete": [{"id": "none"}],
    },
    "login_waits": {
        "lock": [{"upstream": "rare", "owner": "alice"}],
        "add": [{"call_id": "call_rare", "upstream": "rare", "owner": "alice", "tokens_version": 1}],
        "waiting": [{"upstream": "rare", "owner": "alice", "tokens_version": each} for each in (1, 2)],
        "remove": [{"ids": '["call_none"]'}],
        "mark_orphans": [{"tokens_version": -1, **each} for each in _OWNER_RANGES],
        "resume_orphans": [{"tokens_version": 0, "worked_at": NOW, **each} for each in _OWNER_RANGES],
        "save_resumption": [{"upstream": "rare", "owner": "alice", "tokens_version": 1, "worked_at": NOW}],
        "next_resumption": [{}],
        "remove_resumption": [{"upstream": "rare", "owner": "alice", "tokens_version": 1}],
    },
    "unused_logins": {
        "with_tokens": [{}],
        "insert": [{"upstream": each, "unused_since": FUTURE} for each in ("rare", "new")],
        "delete": [{"upstreams": '["none"]'}],
        "due": [{"cutoff": NOW}],
        "remove_tokens": [{"upstream": each, "unused_since": FUTURE} for each in ("rare", "none")],
    },
    "login_checks": {
        "insert": [
            {"upstream": "rare", "owner": each, "due_at": FUTURE, "pause_seconds": 60.0} for each in ("alice", "new")
        ],
        "due": [{}],
        "late": [{"latest": FUTURE}],
        "replace": [{"upstream": "rare", "owner": "alice", "due_at": FUTURE, "pause_seconds": 60.0}],
        "delete": [{"upstream": "rare", "owner": "none"}],
        "waiting": [{"call_id": "call_rare"}, {"call_id": "call_none"}],
        "resume_others": [{"ids": '["call_rare", "call_none"]', "worked_at": NOW}],
    },
}
