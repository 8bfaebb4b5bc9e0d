"""Triggers count new rows once for each statement: the work for a row does not grow with the rows of its transaction."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest

from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.ids import WebhookId
from ringback.domain.jsontext import dumps
from ringback.domain.ports import Transaction
from ringback.domain.usage import LogUsage
from ringback.storage.postgres.statements import load_sql
from ringback.storage.postgres.store import PostgresStore
from ringback.storage.rows.columns import RECORDS
from tests.support.builders import make_call, make_delivery, make_event
from tests.support.clock import START
from tests.support.examples import ALICE

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


async def test_bytes_that_nodes_store_and_remove_at_once_are_all_counted(
    store: PostgresStore, other: PostgresStore
) -> None:
    """No unit waits for the counts of another one, which may wait for a log that the first one holds."""

    async def publish(node: PostgresStore, number: int) -> None:
        async def work(tx: Transaction) -> None:
            await tx.calls.insert(make_call(arguments={"text": "x" * number}))
            seq = await tx.events.reserve_seqs(ALICE, 1)
            event = make_event(name="order.paid", call_id=None, seq=seq, data={"n": "x" * 100}, occurred_at=START)
            await tx.events.insert([replace(event, created_at=START)])
            await tx.deliveries.insert([make_delivery(body=b"x" * number)])

        await node.write(work)

    async def remove(node: PostgresStore) -> None:
        await node.write(lambda tx: tx.events.remove(cutoff=START + timedelta(seconds=1), limit=3))

    units = [publish(node, number) for node in (store, other) for number in range(20)]
    await asyncio.gather(*units, *[remove(node) for node in (store, other) for _ in range(4)])

    usage = await other.read(lambda tx: tx.usage.get_usage(ALICE))
    assert usage.stored_calls == 40
    assert usage.argument_bytes == 2 * sum(len(dumps({"text": "x" * number})) + len(b"{}") for number in range(20))
    await store.write(lambda tx: tx.erased_deliveries.delete_of_webhooks([make_delivery().webhook_id], limit=100))
    while await store.write(lambda tx: tx.events.remove(cutoff=START + timedelta(seconds=1), limit=3)):
        pass
    assert await store.read(lambda tx: tx.usage.get_log_usage(ALICE)) == LogUsage(event_bytes=0, delivery_bytes=0)


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
