"""Bytes of arguments and events of a database that older code has filled, or still fills, are counted."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import pytest

from ringback.domain.call import Call, CallPhase, CallStatus, count_argument_bytes
from ringback.domain.event import Event, EventName
from ringback.domain.jsontext import dumps
from ringback.domain.principal import Principal
from tests.support.builders import make_call, make_event
from tests.support.clock import START
from tests.support.databases import StoreKind
from tests.support.examples import ALICE, BOB
from tests.support.older_databases import OlderDatabase, open_older_database

CALLS: Final = [make_call(principal=principal, arguments={"text": "ä" * 100}) for principal in (ALICE, ALICE, BOB)]
EVENTS: Final = [
    make_event(seq=1, name="order.paid", occurred_at=START, data={"text": "ö" * 50}),
    make_event(seq=2, name=EventName.CALL_PROGRESS, data={"message": "ü"}),
    make_event(seq=3),
]
ERROR: Final = {"code": -32603, "message": "ä" * 200}
FAILED: Final = make_call(principal=BOB, status=CallStatus.FAILED, phase=CallPhase.ENDED, error=ERROR)


@pytest.fixture
async def database(tmp_path: Path, store_kind: StoreKind) -> AsyncGenerator[OlderDatabase]:
    async with open_older_database(tmp_path, store_kind) as opened:
        yield opened


async def sum_up(database: OlderDatabase, column: str, table: str) -> dict[Principal, int]:
    statement = f"SELECT principal, CAST(sum({column}) AS bigint) FROM {table} GROUP BY principal"  # noqa: S608 - its own names
    rows = await database.fetch(statement)
    return {Principal(principal): count for principal, count in rows}


def argument_bytes(*calls: Call) -> int:
    return sum(count_argument_bytes(call.arguments or {}, call.meta) for call in calls)


def event_bytes(*events: Event) -> int:
    return sum(len(dumps(event.data)) for event in events)


async def test_errors_that_were_stored_before_count_as_results_until_they_are_removed(database: OlderDatabase) -> None:
    await database.migrate(is_older=True)
    await database.insert([FAILED], [])

    await database.migrate()

    assert await sum_up(database, "result_bytes", "call_counts") == {BOB: len(dumps(ERROR))}
    await database.delete_calls(FAILED)
    assert await sum_up(database, "result_bytes", "call_counts") == {BOB: 0}


async def test_a_migrated_database_counts_what_it_has_and_what_it_loses(database: OlderDatabase) -> None:
    await database.migrate(is_older=True)
    await database.insert(CALLS, EVENTS)

    await database.migrate()

    assert await sum_up(database, "argument_bytes", "call_counts") == {
        ALICE: argument_bytes(*CALLS[:2]),
        BOB: argument_bytes(CALLS[2]),
    }
    assert await sum_up(database, "event_bytes", "byte_counts") == {ALICE: event_bytes(*EVENTS[:2])}
    await database.fetch(f"UPDATE calls SET status = 'failed' WHERE id = '{CALLS[1].id}'")  # noqa: S608 - its own id
    await database.delete_calls(CALLS[0])
    await database.fetch("DELETE FROM events")
    assert await sum_up(database, "argument_bytes", "call_counts") == {
        ALICE: argument_bytes(CALLS[1]),
        BOB: argument_bytes(CALLS[2]),
    }
    assert await sum_up(database, "event_bytes", "byte_counts") == {}


async def test_the_calls_of_a_migrated_database_are_counted(database: OlderDatabase, store_kind: StoreKind) -> None:
    await database.migrate(is_older=True)
    await database.insert(CALLS, [])

    await database.migrate()

    column = "calls" if store_kind is StoreKind.SQLITE else "working"
    assert await sum_up(database, column, "call_counts") == {ALICE: 2, BOB: 1}


async def test_what_older_code_writes_to_a_migrated_database_is_counted(database: OlderDatabase) -> None:
    await database.migrate()
    await database.migrate(is_older=True)

    await database.insert(CALLS, EVENTS)

    assert await sum_up(database, "argument_bytes", "call_counts") == {
        ALICE: argument_bytes(*CALLS[:2]),
        BOB: argument_bytes(CALLS[2]),
    }
    assert await sum_up(database, "event_bytes", "byte_counts") == {ALICE: event_bytes(*EVENTS[:2])}
    await database.delete_calls(*CALLS[:2])
    assert await sum_up(database, "argument_bytes", "call_counts") == {ALICE: 0, BOB: argument_bytes(CALLS[2])}
