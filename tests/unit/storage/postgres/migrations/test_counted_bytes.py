"""Bytes of arguments and events of a PostgreSQL database that older code has filled, or still fills, are counted."""

from collections.abc import Mapping, Sequence
from typing import Any

from ringback.domain.call import Call, CallPhase, CallStatus, count_argument_bytes
from ringback.domain.event import Event, EventName
from ringback.domain.jsontext import dumps
from ringback.storage.postgres.migrator import load_migrations, migrate_database
from ringback.storage.postgres.statements import load_sql
from ringback.storage.queries import replace_parameters
from ringback.storage.rows.columns import RECORDS
from tests.support.builders import make_call, make_event
from tests.support.clock import START
from tests.support.examples import ALICE, BOB
from tests.support.filled_postgres import Connection

OLDER = [migration for migration in load_migrations() if migration.number < 28]
INSERT_WHOLE = (
    f"WITH stored AS (INSERT INTO calls {RECORDS.call.insert_lists()}) "  # noqa: S608 - its own names
    "INSERT INTO inputs (call_id, arguments, meta, key_id) VALUES (:id, :arguments, :meta, NULL)"
)
"""As older code inserts a call."""
INSERT_EVENT = f"INSERT INTO events {RECORDS.event.insert_lists()}"
CALLS = [make_call(principal=principal, arguments={"text": "ä" * 100}) for principal in (ALICE, ALICE, BOB)]
EVENTS = [
    make_event(seq=1, name="order.paid", occurred_at=START, data={"text": "ö" * 50}),
    make_event(seq=2, name=EventName.CALL_PROGRESS, data={"message": "ü"}),
    make_event(seq=3),
]


ERROR = {"code": -32603, "message": "ä" * 200}
FAILED = make_call(principal=BOB, status=CallStatus.FAILED, phase=CallPhase.ENDED, error=ERROR)


async def run(connection: Connection, statement: str, row: Mapping[str, Any]) -> None:
    values = list[Any]()

    def number(name: str) -> str:
        values.append(row[name])
        return f"${len(values)}"

    numbered = replace_parameters(statement, number)
    await connection.execute(numbered, *values)


async def insert_as_older_code(connection: Connection, calls: Sequence[Call], events: Sequence[Event]) -> None:
    for call in calls:
        await run(connection, INSERT_WHOLE, RECORDS.whole_call.encode(call))
    for event in events:
        await run(connection, INSERT_EVENT, RECORDS.event.encode(event))


async def delete_calls(connection: Connection, *calls: Call) -> None:
    await connection.execute(load_sql("tombstones")["delete_calls"].writing, [call.id for call in calls])


async def count_arguments(connection: Connection) -> dict[str, int]:
    rows = await connection.fetch("SELECT principal, sum(argument_bytes)::bigint FROM call_counts GROUP BY principal")
    return dict(map(tuple, rows))


async def count_events(connection: Connection) -> dict[str, int]:
    rows = await connection.fetch("SELECT principal, sum(event_bytes)::bigint FROM byte_counts GROUP BY principal")
    return dict(map(tuple, rows))


def argument_bytes(*calls: Call) -> int:
    return sum(count_argument_bytes(call.arguments or {}, call.meta) for call in calls)


async def test_errors_that_were_stored_before_count_as_results_until_they_are_removed(
    url: str, connection: Connection
) -> None:
    await migrate_database(url, OLDER)
    await insert_as_older_code(connection, [FAILED], [])

    await migrate_database(url)

    counted = "SELECT sum(result_bytes)::bigint FROM call_counts"
    assert await connection.fetchval(counted) == len(dumps(ERROR))
    await delete_calls(connection, FAILED)
    assert await connection.fetchval(counted) == 0


async def test_a_migrated_database_counts_what_it_has_and_what_it_loses(url: str, connection: Connection) -> None:
    await migrate_database(url, OLDER)
    await insert_as_older_code(connection, CALLS, EVENTS)

    await migrate_database(url)

    assert await count_arguments(connection) == {ALICE: argument_bytes(*CALLS[:2]), BOB: argument_bytes(CALLS[2])}
    assert await count_events(connection) == {ALICE: sum(len(dumps(event.data)) for event in EVENTS[:2])}
    assert await connection.fetchval("SELECT sum(working) FROM call_counts") == len(CALLS)
    await connection.execute("UPDATE calls SET status = 'failed' WHERE id = $1", CALLS[1].id)
    await delete_calls(connection, CALLS[0])
    await connection.execute("DELETE FROM events")
    assert await count_arguments(connection) == {ALICE: argument_bytes(CALLS[1]), BOB: argument_bytes(CALLS[2])}
    assert await count_events(connection) == {}


async def test_what_older_nodes_write_to_a_migrated_database_is_counted(url: str, connection: Connection) -> None:
    await migrate_database(url)
    await migrate_database(url, OLDER)  # raises if that code may not run on it

    await insert_as_older_code(connection, CALLS, EVENTS)

    assert await count_arguments(connection) == {ALICE: argument_bytes(*CALLS[:2]), BOB: argument_bytes(CALLS[2])}
    assert await count_events(connection) == {ALICE: sum(len(dumps(event.data)) for event in EVENTS[:2])}
    await delete_calls(connection, *CALLS[:2])
    assert await count_arguments(connection) == {ALICE: 0, BOB: argument_bytes(CALLS[2])}
