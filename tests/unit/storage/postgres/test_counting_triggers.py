"""Triggers count new rows once for each statement: the work for a row does not grow with the rows of its transaction."""

from collections.abc import Sequence

import asyncpg
import pytest

from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.ids import WebhookId
from ringback.storage.postgres.statements import load_sql
from ringback.storage.postgres.store import PostgresStore
from ringback.storage.rows.columns import RECORDS
from tests.support.builders import make_call, make_delivery

MANY = 1_000
HOOK = WebhookId("wh_1")


def make_held(count: int) -> Sequence[Delivery]:
    return [make_delivery(webhook_id=HOOK, state=DeliveryState.HELD) for _ in range(count)]


async def test_a_batch_of_held_deliveries_is_one_change_of_its_webhooks_count(
    store: PostgresStore, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await store.write(lambda tx: tx.deliveries.insert(make_held(1)))
    await admin.execute("VACUUM FULL held_counts")  # versions of earlier tests would leave places free
    (before,) = await admin.fetch("SELECT ctid, held FROM held_counts")

    await store.write(lambda tx: tx.deliveries.insert(make_held(MANY)))

    (after,) = await admin.fetch("SELECT ctid, held FROM held_counts")
    assert after["held"] == MANY + 1
    assert versions_between(before["ctid"], after["ctid"]) == 1


async def test_a_copied_batch_of_calls_is_one_change_of_its_principals_counts(
    store: PostgresStore, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await store.write(lambda tx: tx.calls.insert(make_call()))
    (row,) = await admin.fetch("SELECT * FROM calls")
    await admin.execute("VACUUM FULL call_counts")
    (before,) = await admin.fetch("SELECT ctid, working FROM call_counts")

    await admin.copy_records_to_table(
        "calls", records=[(f"call_copy-{number}", *tuple(row)[1:]) for number in range(MANY)], columns=list(row.keys())
    )

    (after,) = await admin.fetch("SELECT ctid, working FROM call_counts")
    assert after["working"] == MANY + 1
    assert versions_between(before["ctid"], after["ctid"]) == 1


def versions_between(before: tuple[int, int], after: tuple[int, int]) -> int:
    """On one page, each version of a row has the next place."""
    assert before[0] == after[0]
    return after[1] - before[1]


@pytest.mark.parametrize("state", [DeliveryState.PENDING, DeliveryState.HELD])
async def test_the_count_of_held_deliveries_is_what_a_count_of_the_rows_finds(
    store: PostgresStore, admin: "asyncpg.Connection[asyncpg.Record]", state: DeliveryState
) -> None:
    deliveries = [*make_held(5), make_delivery(webhook_id=HOOK, state=state), make_delivery(state=DeliveryState.HELD)]
    await store.write(lambda tx: tx.deliveries.insert(deliveries))
    await store.write(lambda tx: tx.webhook_deliveries.release_held(HOOK, now=tx.now(), limit=2))
    await store.write(lambda tx: tx.webhook_deliveries.hold_pending(HOOK, limit=1))

    counted = await admin.fetch("SELECT webhook_id, sum(held)::bigint AS held FROM held_counts GROUP BY 1 ORDER BY 1")
    found = await admin.fetch(
        "SELECT webhook_id, count(*) AS held FROM deliveries WHERE state = 'held' GROUP BY 1 ORDER BY 1"
    )
    assert [tuple(row) for row in counted] == [tuple(row) for row in found]


def test_an_insert_writes_every_column_of_a_delivery() -> None:
    columns = load_sql("deliveries")["insert"].writing.partition("(")[2].partition(")")[0]

    assert [name.strip() for name in columns.split(",")] == [name for name in RECORDS.delivery.names if name != "body"]
