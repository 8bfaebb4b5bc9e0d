"""What the database holds at the end of a run, as plain values for the checks."""

from dataclasses import dataclass
from typing import Any

import orjson

from scripts.simulate_runs.database import SharedDatabase


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDelivery:
    id: str
    principal: str
    webhook_id: str
    event_id: str | None
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
class StoredRecords:
    calls: tuple[StoredCall, ...]
    events: tuple[StoredEvent, ...]
    deliveries: tuple[StoredDelivery, ...]
    webhooks: tuple[StoredWebhook, ...]
    heads: dict[str, int]


def read_records(database: SharedDatabase) -> StoredRecords:
    return StoredRecords(
        calls=tuple(_read_call(dict(row)) for row in database.query(_CALLS)),
        events=tuple(
            StoredEvent(**{**dict(row), "outcome": orjson.loads(row["outcome"]).get("outcome")})
            for row in database.query(_EVENTS)
        ),
        deliveries=tuple(StoredDelivery(**dict(row)) for row in database.query(_DELIVERIES)),
        webhooks=tuple(StoredWebhook(**dict(row)) for row in database.query(_WEBHOOKS)),
        heads={row["principal"]: row["seq"] for row in database.query("SELECT principal, seq FROM log_heads")},
    )


def _read_call(row: dict[str, Any]) -> StoredCall:
    body = row.pop("body")
    text = None if body is None else orjson.loads(body)["content"][0]["text"]
    return StoredCall(result=text, **row)


_CALLS = """
    SELECT id, principal, idempotency_key, correlation_id, upstream, client_session_id, status, outcome, phase, runs,
        lease_owner, created_at, finished_at, deadline_at, body
    FROM calls LEFT JOIN results ON call_id = id ORDER BY id
"""
_EVENTS = "SELECT id, principal, seq, name, call_id, data AS outcome, created_at FROM events ORDER BY principal, seq"
_DELIVERIES = """
    SELECT id, principal, webhook_id, event_id, kind, seq, generation, state, attempts, order_key FROM deliveries ORDER BY id
"""
_WEBHOOKS = "SELECT id, principal, state, call_id, missed_from FROM webhooks ORDER BY id"
