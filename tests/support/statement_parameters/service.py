"""Parameters of the statements about upstreams, nodes and the service's own rows."""

from typing import Final

from tests.support.filled_database import FUTURE, NOW
from tests.support.statement_parameters.shape import StatementParameters

SERVICE_PARAMETERS: Final[StatementParameters] = {
    "catalog": {
        "all": [{}],
        "save_part": [{"upstream": "busy", "part": "tools", "body": "[]", "fetched_at": NOW}],
        "remove_other_upstreams": [{"upstreams": '["busy"]'}],
        "remove_upstream": [{"upstream": "rare"}],
    },
    "owned_catalog": {
        "of_owner": [{"owner": "alice", "upstream": "rare"}, {"owner": "dave", "upstream": "rare"}],
        "save_part": [
            {"owner": each, "upstream": "rare", "part": "tools", "body": "[]", "fetched_at": NOW}
            for each in ("alice", "new")
        ],
        "next_upstream": [{"after": ""}, {"after": "busy"}, {"after": "rare"}],
        "remove_upstream": [{"upstream": "rare"}],
        "remove_owned": [{"owner": "alice", "upstream": "rare"}],
        "remove_old": [{}],
    },
    "commit_count": {
        "get": [{}],
        "set": [{"number": 1}],
    },
    "upstream_controls": {
        "all": [{}],
        "save": [{"upstream": "busy", "intake": "paused", "changed_at": NOW}],
        "remove": [{"upstream": "busy"}],
    },
    "tool_aliases": {
        "all": [{}],
        "insert": [{"kind": "tool", "name": "n", "upstream": "busy", "original": "o"}],
    },
    "scheduling_time": {
        "load": [{}],
        "save": [{"instant_max": FUTURE}],
    },
    "sealed_values": {
        "count webhooks.secrets": [{}],
        "count bodies.body": [{}],
        "count mcp_sessions.state": [{}],
        "count upstream_logins.request": [{}],
        "count upstream_tokens.secrets": [{}],
        "count oauth_clients.client": [{}],
        "count inputs.arguments": [{}],
        "count results.body": [{}],
        "webhooks.secrets": [{}],
        "bodies.body": [{"bytes_max": 2_000}],
        "mcp_sessions.state": [{}],
        "upstream_logins.request": [{}],
        "upstream_tokens.secrets": [{}],
        "oauth_clients.client": [{}],
        "put webhooks.secrets": [{"id": "wh_rare", "sealed": b""}],
        "put bodies.body": [{"id": "dlv_wh_rare-held", "sealed": b""}],
        "put mcp_sessions.state": [{"id": "session-rare", "sealed": b""}],
        "put upstream_logins.request": [{"id": "login_rare", "sealed": b""}],
        "put upstream_tokens.secrets": [{"id": "rare/alice", "sealed": b""}],
        "put oauth_clients.client": [{"id": "https://rare.example https://us.example", "sealed": b""}],
    },
    "sealing_keys": {
        "all": [{}],
        "add": [{"key_id": "k", "check_value": b"check"}, {"key_id": "new", "check_value": b"check"}],
        "remove": [{"key_id": "k"}],
        "accept_loss": [{"key_id": "k"}],
    },
    "leaders": {
        "acquire": [{"duty": "watch", "owner": "me", "until": FUTURE}],
        "release": [{"duty": "watch", "owner": "me"}],
        "shorten_lease": [{"duty": "watch", "ends_after": FUTURE, "until": FUTURE}],
        "is_held": [{"duty": "watch"}],
    },
    "write_probe": {
        "write": [{"bytes": 4096}],
        "file": [{}],
    },
}
