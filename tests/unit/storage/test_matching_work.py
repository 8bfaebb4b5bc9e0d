"""The cost of an event does not grow with webhooks that do not match it, whatever their filters are."""

import sqlite3
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from ringback.domain.call_outcome import CallOutcome
from ringback.domain.event import Event, EventName
from ringback.domain.ids import CallId
from ringback.domain.webhook import Webhook, WebhookState
from ringback.storage.rows.webhook_reader import CachingWebhookReader
from ringback.storage.sqlite.database import connect
from ringback.storage.sqlite.statements import statements_on
from ringback.storage.sqlite.transaction import SqliteTransaction
from ringback.storage.sqlite.unit_of_work import run_to_completion
from tests.support.builders import make_event, make_webhook
from tests.support.clock import START
from tests.support.examples import ALICE
from tests.support.shared_setup import create_tables
from tests.support.stores import make_sealer
from tests.support.vm_steps import counting_vm_steps

FEW, MANY, MANY_DEEP = 100, 1_000, 100_000
ADDITIONAL_STEPS_MAX: Final = 200
"""Between the two: a deeper tree costs a comparison more at each level."""
EVENT: Final = make_event(call_id=CallId("call_heard"), data={"outcome": "result"})
CHANGE: Final = make_event(
    name=EventName.UPSTREAM_CHANGED,
    call_id=None,
    client_session_id=None,
    correlation_id=None,
    tool=None,
    data={"uri": "u"},
)
NON_MATCHING_WEBHOOKS: Final[dict[str, tuple[Event, dict[str, Any]]]] = {
    "events": (EVENT, {"events": frozenset({EventName.CALL_PROGRESS})}),
    "upstream": (EVENT, {"upstream": "other"}),
    "tool": (EVENT, {"tool": "other"}),
    "call_id": (EVENT, {"call_id": CallId("call_other")}),
    "client_session_id": (EVENT, {"client_session_id": "other"}),
    "correlation_id": (EVENT, {"correlation_id": "other", "match_correlation": True}),
    "resource_uri": (
        CHANGE,
        {"events": frozenset({EventName.UPSTREAM_CHANGED}), "upstream": CHANGE.upstream, "resource_uri": "other"},
    ),
    "outcomes": (EVENT, {"outcomes": frozenset({CallOutcome.UNKNOWN, CallOutcome.TIMED_OUT})}),
    "state": (EVENT, {"state": WebhookState.DISABLED}),
    "expires_at": (EVENT, {"expires_at": START}),
    "all filters but one that fit": (
        EVENT,
        {
            "upstream": EVENT.upstream,
            "tool": EVENT.tool,
            "client_session_id": EVENT.client_session_id,
            "correlation_id": "other",
            "match_correlation": True,
        },
    ),
}

_COPIES: Final = """
WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < :count)
INSERT INTO webhooks ({columns}) SELECT {values} FROM numbers CROSS JOIN webhooks WHERE id = :id
"""


@pytest.fixture
def connection(tmp_path: Path) -> Generator[sqlite3.Connection]:
    with closing(connect(tmp_path / "ringback.db", lock_wait_seconds=0)) as connection:
        create_tables(connection)
        connection.execute("BEGIN")
        yield connection


@pytest.fixture
def tx(connection: sqlite3.Connection) -> SqliteTransaction:
    sealer = make_sealer()
    reader = CachingWebhookReader(sealer)
    return SqliteTransaction(connection, statements_on(connection), sealer=sealer, webhook_reader=reader, now=START)


def copy(connection: sqlite3.Connection, webhook: Webhook, count: int, *, suffix: str = "") -> None:
    """Insert copies of this webhook. Where its filter does not match the event, each copy has its own value."""
    columns = [row["name"] for row in connection.execute("SELECT name FROM pragma_table_info('webhooks')")]
    own = [name for name in columns if getattr(webhook, name, None) in {"other", "call_other"}]
    values = {name: f'"{name}"' for name in columns} | {"id": "id || number || :suffix"}
    values |= {name: f"{name} || number" for name in own}
    statement = _COPIES.format(columns=", ".join(f'"{name}"' for name in columns), values=", ".join(values.values()))
    connection.execute(statement, {"count": count, "id": webhook.id, "suffix": suffix})


def steps_of(connection: sqlite3.Connection, tx: SqliteTransaction, event: Event) -> tuple[int, list[str]]:
    with counting_vm_steps(connection) as steps:
        (found,) = run_to_completion(tx.webhooks.find_candidates([event], catching_up=False))
    return steps.count, [webhook.id for webhook in found]


@pytest.mark.requirement("R25")
@pytest.mark.parametrize("field", sorted(NON_MATCHING_WEBHOOKS))
def test_an_event_visits_only_matching_webhooks(
    connection: sqlite3.Connection, tx: SqliteTransaction, *, field: str, deep: bool
) -> None:
    event, over = NON_MATCHING_WEBHOOKS[field]
    deaf = make_webhook(principal=ALICE, **over)
    hearing = make_webhook(principal=ALICE, **over)
    hearing = replace(
        hearing,
        events=frozenset({event.name}),
        upstream=event.upstream,
        tool=event.tool,
        call_id=event.call_id,
        client_session_id=event.client_session_id,
        correlation_id=event.correlation_id,
        match_correlation=event.correlation_id is not None,
        resource_uri=event.data.get("uri"),
        outcomes=frozenset({CallOutcome.RESULT}) if deaf.outcomes else None,
        state=WebhookState.ACTIVE,
        expires_at=None,
    )
    for webhook in (deaf, hearing):
        run_to_completion(tx.webhooks.insert(webhook))

    copy(connection, deaf, FEW, suffix="of-few")
    among_few, found = steps_of(connection, tx, event)
    assert found == [hearing.id]
    copy(connection, deaf, MANY_DEEP if deep else MANY, suffix="of-many")
    among_many, found = steps_of(connection, tx, event)

    assert found == [hearing.id]
    assert among_many - among_few <= ADDITIONAL_STEPS_MAX


def test_starting_a_call_runs_no_statement_that_grows_with_webhooks(
    connection: sqlite3.Connection, tx: SqliteTransaction
) -> None:
    webhook = make_webhook(principal=ALICE)
    run_to_completion(tx.webhooks.insert(webhook))

    def steps() -> int:
        with counting_vm_steps(connection) as counted:
            run_to_completion(tx.usage.get_usage(ALICE))
        return counted.count

    alone = steps()
    copy(connection, webhook, FEW)

    assert steps() == alone
