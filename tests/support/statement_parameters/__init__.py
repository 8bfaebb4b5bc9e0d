"""Parameters of every statement in sql/, for the test that counts its work (tests/unit/storage/test_statement_work.py).

One module for each group of nouns; `shape` has the numbers of rows.
"""

from typing import Any, Final

from tests.support.filled_database import NOW
from tests.support.statement_parameters.calls import CALL_PARAMETERS
from tests.support.statement_parameters.dashboard import DASHBOARD_PARAMETERS
from tests.support.statement_parameters.deliveries import DELIVERY_PARAMETERS
from tests.support.statement_parameters.events import EVENT_PARAMETERS
from tests.support.statement_parameters.insights import INSIGHT_PARAMETERS
from tests.support.statement_parameters.logins import LOGIN_PARAMETERS
from tests.support.statement_parameters.merged import MERGED_PARAMETERS
from tests.support.statement_parameters.principals import PRINCIPAL_PARAMETERS
from tests.support.statement_parameters.service import SERVICE_PARAMETERS
from tests.support.statement_parameters.shape import (
    FEW_ROWS,
    MANY_ROWS,
    MANY_ROWS_DEEP,
    StatementParameters,
)
from tests.support.statement_parameters.webhooks import WEBHOOK_PARAMETERS

__all__ = [
    "COMMON_PARAMETERS",
    "FEW_ROWS",
    "FULL_SCAN_STATEMENTS",
    "MANY_ROWS",
    "MANY_ROWS_DEEP",
    "PARAMETERS",
    "POSTGRES_PARAMETERS",
]

COMMON_PARAMETERS: Final[dict[str, Any]] = {
    "principal": "alice",
    "now": NOW,
    "older_than": NOW,
    "limit": 10,
    "scan": 100,
    "kept": 86_400_000,
    "before": None,
    "first_id": "",
    "outcomes": None,
    "category": None,
    "min_attempts": 0,
    "min_runs": 0,
    "min_delivery_attempts": 0,
    "latest": 0,
    "after": "",
    "status": None,
    "upstream": None,
    "tool": None,
    "started": None,
    "client_session_id": None,
    "correlation_id": None,
    "state": None,
    "webhook_id": None,
    "call_id": None,
    "name": None,
    "topic": None,
}

PARAMETERS: Final[StatementParameters] = (
    CALL_PARAMETERS
    | DELIVERY_PARAMETERS
    | WEBHOOK_PARAMETERS
    | PRINCIPAL_PARAMETERS
    | EVENT_PARAMETERS
    | LOGIN_PARAMETERS
    | DASHBOARD_PARAMETERS
    | SERVICE_PARAMETERS
    | INSIGHT_PARAMETERS
)
"""Each statement's parameters, with which it finds a few rows among the filler rows. A statement with `scan` visits that many
filler rows at most."""

POSTGRES_PARAMETERS: Final[StatementParameters] = MERGED_PARAMETERS
"""The same for statements that SQLite does not have: each takes the place of several, to save round trips."""

FULL_SCAN_STATEMENTS: Final = {
    "catalog.all": "a few rows an upstream, read at start",
    "catalog.remove_other_upstreams": "a few rows an upstream, once at start",
    "change_subscriptions.all": "what webhooks and demands watch now, for the node that watches; no unit that writes reads it",
    "event_demands.current": "what principals want of upstreams now; each principal has a bounded number",
    "event_demands.different": "the same, in a thread of the pool",
    "event_demands.ended": "the same, and those that ended within the last minute",
    "event_demands.remove_unwanted_followings": "a row for each different demand",
    "tool_aliases.all": "the few names that are too long or have odd characters",
    "api_keys.all": "an operator's list of keys",
    "upstream_controls.all": "a row for each upstream that is paused or drained now",
    "oauth_clients.remove_oldest": "a thousand rows, when a client is registered",
    "usage.calls_by_status": "five rows a principal, for metrics, in a thread of the pool",
    "usage.count_subscriptions": "a row a principal, for metrics, in a thread of the pool",
    "usage.count_events": "a row a principal, for metrics, in a thread of the pool",
}
"""Statements that return all rows that they read."""
