"""What the database holds at the end of a run, as plain values for the checks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from ringback.signing.sealing import sealed_value_header
from scripts.simulate_runs.database import SECOND_SEALING_KEY, SharedDatabase

KEPT_COLUMNS: Final = frozenset(
    {
        "tombstones.call_id",
        "events.call_id",
        "events.data",
        "deliveries.call_id",
        "deliveries.order_key",
        "audit_entries.target",
        "erasures.target",
    }
)
"""Where the id of an erased call stays: its tombstone, the stubs of its events and what sends them to later webhooks (which
`checks_of_actions` looks at), the audit log, and the erasure itself."""
KEPT_NAME_COLUMNS: Final = frozenset({"tombstones.idempotency_key"})
"""Where its name stays: the key starts no second call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCall:
    id: str
    principal: str
    idempotency_key: str | None
    correlation_id: str | None
    upstream: str
    client_session_id: str | None
    status: str
    outcome: str | None
    phase: str
    runs: int
    result: str | None
    """The text of its stored result."""
    lease_owner: str | None
    cancel_requested: bool
    created_at: int
    finished_at: int | None
    deadline_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    id: str
    principal: str
    seq: int
    name: str
    call_id: str | None
    outcome: str | None
    created_at: int


_WRONG_COUNTS: Final = """
SELECT principal, sum(argument) AS argument, sum(result) AS result, sum(event) AS event, sum(delivery) AS delivery
FROM (
    SELECT
        principal, length(CAST(arguments AS BLOB)) + length(CAST(meta AS BLOB)) AS argument,
        coalesce(result_bytes, length(CAST(error AS BLOB)), 0) AS result, 0 AS event, 0 AS delivery
    FROM whole_calls
    UNION ALL
    SELECT principal, 0, 0, length(CAST(data AS BLOB)), 0 FROM events WHERE occurred_at IS NOT NULL OR name = 'call.progress'
    UNION ALL SELECT principal, 0, 0, 0, length(body) FROM bodies
    UNION ALL SELECT principal, -argument_bytes, -result_bytes, 0, 0 FROM call_counts
    UNION ALL SELECT principal, 0, 0, -event_bytes, -delivery_bytes FROM byte_counts
)
GROUP BY principal
HAVING sum(argument) <> 0 OR sum(result) <> 0 OR sum(event) <> 0 OR sum(delivery) <> 0
"""
"""By how many bytes the rows of a principal have more than is counted for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDelivery:
    id: str
    principal: str
    webhook_id: str
    event_id: str | None
    call_id: str | None
    created_at: int
    kind: str
    seq: int | None
    generation: int
    state: str
    attempts: int
    order_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWebhook:
    id: str
    principal: str
    state: str
    call_id: str | None
    missed_from: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredErasure:
    id: str
    principal: str
    finished_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecords:
    calls: tuple[StoredCall, ...]
    events: tuple[StoredEvent, ...]
    deliveries: tuple[StoredDelivery, ...]
    webhooks: tuple[StoredWebhook, ...]
    heads: dict[str, int]
    erasures: tuple[StoredErasure, ...] = ()
    erased_calls: Mapping[str, int] = field(default_factory=dict[str, int])
    """The milliseconds at which the events of each erased call became stubs."""
    wrong_counts: tuple[str, ...] = ()
    """Principals whose counted bytes are not those of their rows."""
    traces: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Where each name of an erased call is still found: tables and columns."""


def read_records(database: SharedDatabase, *, erased: Iterable[str] = ()) -> StoredRecords:
    """`erased` are ids and names of calls of which nothing should be left."""
    return StoredRecords(
        calls=tuple(_read_call(dict(row)) for row in database.query(_CALLS)),
        events=tuple(
            StoredEvent(**{**dict(row), "outcome": orjson.loads(row["outcome"]).get("outcome")})
            for row in database.query(_EVENTS)
        ),
        deliveries=tuple(StoredDelivery(**dict(row)) for row in database.query(_DELIVERIES)),
        webhooks=tuple(StoredWebhook(**dict(row)) for row in database.query(_WEBHOOKS)),
        heads={row["principal"]: row["seq"] for row in database.query("SELECT principal, seq FROM log_heads")},
        erasures=tuple(
            StoredErasure(**dict(row)) for row in database.query("SELECT id, principal, finished_at FROM erasures")
        ),
        erased_calls={row["call_id"]: row["expired_at"] for row in database.query(_ERASED_CALLS)},
        wrong_counts=tuple(str(dict(row)) for row in database.query(_WRONG_COUNTS)),
        traces={name: database.find_text(name, kept=_columns_kept_for(name)) for name in erased},
    )


def find_left_keys(database: SharedDatabase) -> list[str]:
    """The resealed columns that have values which the second key has not sealed."""
    header = sealed_value_header(SECOND_SEALING_KEY)
    left = {
        column: sum(not row["sealed"].startswith(header) for row in database.query(query))
        for column, query in _SEALED.items()
    }
    return [f"{count} values of {column} are sealed with the first key" for column, count in left.items() if count]


def _columns_kept_for(name: str) -> frozenset[str]:
    return KEPT_COLUMNS if name.startswith("call_") else KEPT_NAME_COLUMNS


def _read_call(row: dict[str, Any]) -> StoredCall:
    body = row.pop("body")
    text = None if body is None else orjson.loads(body)["content"][0]["text"]
    return StoredCall(result=text, **row)


_SEALED: Final = {
    "webhooks.secrets": "SELECT secrets AS sealed FROM webhooks",
    "bodies.body": "SELECT body AS sealed FROM bodies",
    "upstream_tokens.secrets": "SELECT secrets AS sealed FROM upstream_tokens",
}
_CALLS = """
    SELECT id, principal, idempotency_key, correlation_id, upstream, client_session_id, status, outcome, phase, runs,
        lease_owner, cancel_requested, created_at, finished_at, deadline_at, body
    FROM calls LEFT JOIN results ON call_id = id ORDER BY id
"""
_EVENTS = "SELECT id, principal, seq, name, call_id, data AS outcome, created_at FROM events ORDER BY principal, seq"
_DELIVERIES = """
    SELECT id, principal, webhook_id, event_id, call_id, created_at, kind, seq, generation, state, attempts, order_key
    FROM deliveries ORDER BY id
"""
_WEBHOOKS = "SELECT id, principal, state, call_id, missed_from FROM webhooks ORDER BY id"
_ERASED_CALLS = "SELECT call_id, expired_at FROM tombstones WHERE erased = 1"
