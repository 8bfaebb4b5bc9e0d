"""Bytes of arguments and events of a SQLite database that older code has filled, or still fills, are counted."""

import sqlite3
from contextlib import closing
from pathlib import Path

from ringback.domain.call import Call, CallPhase, CallStatus, count_argument_bytes
from ringback.domain.event import Event, EventName
from ringback.domain.jsontext import dumps
from ringback.storage.rows.columns import RECORDS
from ringback.storage.sqlite.database import connect
from ringback.storage.sqlite.migrator import apply_migrations, load_migrations
from tests.support.builders import make_call, make_delivery, make_event
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

OLDER = [migration for migration in load_migrations() if migration.number < 36]
CALLS = [make_call(principal=principal, arguments={"text": "ä" * 100}) for principal in (ALICE, ALICE, BOB)]
EVENTS = [
    make_event(seq=1, name="order.paid", occurred_at=START, data={"text": "ö" * 50}),
    make_event(seq=2, name=EventName.CALL_PROGRESS, data={"message": "ü"}),
    make_event(seq=3),
]


ERROR = {"code": -32603, "message": "ä" * 200}
FAILED = make_call(principal=BOB, status=CallStatus.FAILED, phase=CallPhase.ENDED, error=ERROR)


def insert_as_older_code(connection: sqlite3.Connection, calls: list[Call], events: list[Event]) -> None:
    for call in calls:
        row = RECORDS.whole_call.encode(call)
        connection.execute(f"INSERT INTO calls {RECORDS.call.insert_lists()}", row)
        connection.execute("INSERT INTO inputs (call_id, arguments, meta) VALUES (:id, :arguments, :meta)", row)
    for event in events:
        connection.execute(
            f"INSERT INTO events {RECORDS.event.insert_lists()}",
            RECORDS.event.encode(event),
        )


def count_arguments(connection: sqlite3.Connection) -> dict[str, int]:
    return dict(
        tuple(row)
        for row in connection.execute("SELECT principal, sum(argument_bytes) FROM call_counts GROUP BY principal")
    )


def count_events(connection: sqlite3.Connection) -> dict[str, int]:
    return dict(tuple(row) for row in connection.execute("SELECT principal, event_bytes FROM byte_counts"))


def argument_bytes(*calls: Call) -> int:
    return sum(count_argument_bytes(call.arguments or {}, call.meta) for call in calls)


def test_errors_that_were_stored_before_count_as_results_until_they_are_removed(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "ringback.db", lock_wait_seconds=0)) as connection:
        apply_migrations(connection, OLDER, now=START)
        insert_as_older_code(connection, [FAILED], [])

        apply_migrations(connection, load_migrations(), now=START)

        counted = "SELECT sum(result_bytes) FROM call_counts"
        assert connection.execute(counted).fetchone()[0] == len(dumps(ERROR))
        connection.execute("DELETE FROM calls")
        assert connection.execute(counted).fetchone()[0] == 0


def test_bodies_of_older_code_are_counted_neither_when_they_are_stored_nor_when_they_are_removed(
    tmp_path: Path,
) -> None:
    with closing(connect(tmp_path / "ringback.db", lock_wait_seconds=0)) as connection:
        apply_migrations(connection, load_migrations(), now=START)
        delivery = make_delivery()
        connection.execute(
            f"INSERT INTO deliveries {RECORDS.delivery.insert_lists()}",
            RECORDS.whole_delivery.encode(delivery),
        )
        connection.execute("INSERT INTO bodies (delivery_id, body) VALUES (?, x'0101')", [delivery.id])
        connection.execute("DELETE FROM deliveries")

        assert connection.execute("SELECT count(*) FROM bodies").fetchone()[0] == 0
        assert connection.execute("SELECT count(*) FROM byte_counts").fetchone()[0] == 0


def test_a_migrated_database_counts_what_it_has_and_what_it_loses(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "ringback.db", lock_wait_seconds=0)) as connection:
        apply_migrations(connection, OLDER, now=START)
        insert_as_older_code(connection, CALLS, EVENTS)

        apply_migrations(connection, load_migrations(), now=START)

        assert count_arguments(connection) == {ALICE: argument_bytes(*CALLS[:2]), BOB: argument_bytes(CALLS[2])}
        assert count_events(connection) == {ALICE: sum(len(dumps(event.data)) for event in EVENTS[:2])}
        assert connection.execute("SELECT sum(calls) FROM call_counts").fetchone()[0] == len(CALLS)
        connection.execute("UPDATE calls SET status = 'failed' WHERE id = ?", [CALLS[1].id])
        connection.execute("DELETE FROM calls WHERE id = ?", [CALLS[0].id])
        connection.execute("DELETE FROM events")
        assert count_arguments(connection) == {ALICE: argument_bytes(CALLS[1]), BOB: argument_bytes(CALLS[2])}
        assert count_events(connection) == {}


def test_what_older_code_writes_to_a_migrated_database_is_counted(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "ringback.db", lock_wait_seconds=0)) as connection:
        apply_migrations(connection, load_migrations(), now=START)
        apply_migrations(connection, OLDER, now=START)  # raises if that code may not run on it

        insert_as_older_code(connection, CALLS, EVENTS)

        assert count_arguments(connection) == {ALICE: argument_bytes(*CALLS[:2]), BOB: argument_bytes(CALLS[2])}
        assert count_events(connection) == {ALICE: sum(len(dumps(event.data)) for event in EVENTS[:2])}
        connection.execute("DELETE FROM calls WHERE principal = ?", [ALICE])
        assert count_arguments(connection) == {ALICE: 0, BOB: argument_bytes(CALLS[2])}
