"""How much there is: counted as it changes, and always what a count of the rows would say."""

import os
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.call import FINAL_CALL_STATUSES, Call, CallPhase, CallStatus, count_argument_bytes
from ringback.domain.call_rows import CallChange
from ringback.domain.delivery import DeliveryState
from ringback.domain.erasure import ErasureKind
from ringback.domain.event import Event, EventName
from ringback.domain.ids import CallId
from ringback.domain.jsontext import dumps
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.usage import StoreTotals, Usage
from ringback.domain.webhook import WebhookOrigin
from ringback.signing.sealing import KEY_BYTES, AesGcmSealer
from ringback.storage.open import open_store
from tests.support.builders import (
    make_call,
    make_call_erasure,
    make_delivery,
    make_event,
    make_tombstone,
    make_webhook,
)
from tests.support.clock import START, FakeClock
from tests.support.databases import database_url
from tests.support.examples import ALICE, BOB

NOTHING = Usage(open_calls=0, stored_calls=0, result_bytes=0, argument_bytes=0, delivery_bytes=0)

call_transitions = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([*CallStatus, None]), st.integers(0, 5000)), max_size=20
)
"""Which call, what it becomes (None: it expires), and how large its result is then."""


async def read_usage(store: Store) -> Usage:
    return await store.read(lambda tx: tx.usage.get_usage(ALICE))


async def read_event_bytes(store: Store, principal: Principal = ALICE) -> int:
    return (await store.read(lambda tx: tx.usage.get_log_usage(principal))).event_bytes


async def read_totals(store: Store) -> StoreTotals:
    return await store.read(lambda tx: tx.usage.count_totals())


async def test_an_empty_store_counts_nothing(store: Store) -> None:
    assert await read_usage(store) == NOTHING
    assert await read_event_bytes(store) == 0
    empty = await read_totals(store)
    assert set(empty.calls.values()) | set(empty.open_deliveries.values()) | {empty.events} == {0}
    assert set(empty.calls) == set(CallStatus)
    assert set(empty.open_deliveries) == {DeliveryState.HELD, DeliveryState.PENDING, DeliveryState.LEASED}


@given(moves=call_transitions)
async def test_calls_are_counted_through_everything_that_becomes_of_them(
    store: Store, moves: list[tuple[int, CallStatus | None, int]]
) -> None:
    before = await read_usage(store)
    calls: dict[int, Call] = {
        number: make_call(arguments={"text": "ä" * number}, meta={"trace": "x" * number}) for number in range(4)
    }

    async def live(tx: Transaction) -> None:
        for call in calls.values():
            await tx.calls.insert(call)
        for number, status, size in moves:
            call = calls.get(number)
            if call is None:
                continue
            if status is None:
                await tx.tombstones.archive(make_tombstone(call_id=call.id))
                del calls[number]
                continue
            calls[number] = replace(call, status=status, result_bytes=size if status in FINAL_CALL_STATUSES else None)
            await tx.calls.update(calls[number], CallChange.ENDED, expected=call.status, lease_token=None)

    await store.write(live)

    after = await read_usage(store)
    assert after.open_calls - before.open_calls == sum(
        call.status not in FINAL_CALL_STATUSES for call in calls.values()
    )
    assert after.stored_calls - before.stored_calls == len(calls)
    assert after.result_bytes - before.result_bytes == sum(call.result_bytes or 0 for call in calls.values())
    assert after.argument_bytes - before.argument_bytes == sum(
        count_argument_bytes(call.arguments or {}, call.meta) for call in calls.values()
    )
    assert await store.read(lambda tx: tx.usage.get_usage(BOB)) == NOTHING


async def append(store: Store, *events: Event) -> None:
    async def insert(tx: Transaction) -> None:
        first = await tx.events.reserve_seqs(ALICE, len(events))
        await tx.events.insert([replace(event, seq=seq) for seq, event in enumerate(events, first)])

    await store.write(insert)


def make_published(number: int) -> Event:
    data = {"text": "ä" * number}
    return make_event(name="order.paid", call_id=None, data=data, occurred_at=START, created_at=START)


async def test_bytes_of_events_from_outside_are_counted_and_those_of_the_service_are_not(store: Store) -> None:
    published = [make_published(number) for number in range(3)]
    progress = make_event(name=EventName.CALL_PROGRESS, data={"progress": {"message": "x"}})

    await append(store, *published, progress, make_event(), make_event(name=EventName.WEBHOOK_FAILING))

    assert await read_event_bytes(store) == sum(len(dumps(event.data)) for event in [*published, progress])
    assert await read_event_bytes(store, BOB) == 0


async def test_bytes_of_events_that_retention_removes_are_free_again(store: Store) -> None:
    late = make_published(7)
    await append(store, make_published(5), make_event(name=EventName.CALL_PROGRESS), make_event())
    await append(store, replace(late, created_at=START + timedelta(days=1)))

    assert await store.write(lambda tx: tx.events.remove(cutoff=START + timedelta(seconds=1), limit=10)) == 3

    assert await read_event_bytes(store) == len(dumps(late.data))


async def test_bytes_of_erased_events_are_free_again(store: Store) -> None:
    kept, replaced = make_published(5), make_published(300)
    await append(store, kept, replaced)

    await store.write(lambda tx: tx.erased_deliveries.replace_events([replace(replaced, seq=2, data={})]))

    assert await read_event_bytes(store) == len(dumps(kept.data)) + len(b"{}")
    erasure = replace(make_call_erasure(make_call()), kind=ErasureKind.PRINCIPAL, target=ALICE, head=2)
    assert await store.write(lambda tx: tx.erased_deliveries.delete_events(erasure, limit=10)) == 2
    assert await read_event_bytes(store) == 0


async def test_bytes_of_bodies_are_counted_until_their_deliveries_are_removed(store: Store) -> None:
    old, new = (make_delivery(body=b"x" * size, state=DeliveryState.DELIVERED) for size in (100, 3000))
    old = replace(old, finished_at=START)
    new = replace(new, finished_at=START + timedelta(days=1))
    await store.write(lambda tx: tx.deliveries.insert([old, new, make_delivery(principal=BOB)]))

    before = (await store.read(lambda tx: tx.usage.get_log_usage(ALICE))).delivery_bytes

    assert (await read_usage(store)).delivery_bytes == before > 3100
    assert await store.write(lambda tx: tx.deliveries.remove(cutoff=START + timedelta(seconds=1), limit=10)) == 1
    after = (await store.read(lambda tx: tx.usage.get_log_usage(ALICE))).delivery_bytes
    assert 3000 < after < before - 100
    await store.write(lambda tx: tx.erased_deliveries.delete_of_webhooks([new.webhook_id], limit=10))
    assert (await read_usage(store)).delivery_bytes == 0


async def test_the_error_of_a_call_without_a_result_counts_as_its_result(store: Store) -> None:
    error = {"code": -32603, "message": "ö" * 1000}
    failed = make_call(status=CallStatus.FAILED, phase=CallPhase.ENDED, error=error)
    ended, with_result = make_call(), make_call()

    async def insert(tx: Transaction) -> None:
        for call in (failed, ended, with_result):
            await tx.calls.insert(call)
        for call in (
            replace(ended, status=CallStatus.FAILED, error=error),
            replace(with_result, status=CallStatus.COMPLETED, result_bytes=7),
        ):
            await tx.calls.update(call, CallChange.ENDED, expected=CallStatus.WORKING, lease_token=None)

    await store.write(insert)

    assert (await read_usage(store)).result_bytes == 2 * len(dumps(error)) + 7
    await store.write(lambda tx: tx.tombstones.archive(make_tombstone(call_id=ended.id)))
    assert (await read_usage(store)).result_bytes == len(dumps(error)) + 7


async def test_sealed_arguments_count_as_readable_ones(tmp_path: Path, clock: FakeClock) -> None:
    call = make_call(arguments={"text": "ä" * 1000})
    sealer = AesGcmSealer({"k": b"k" * KEY_BYTES}, current="k", random_bytes=os.urandom, seals_content=True)
    async with open_store(database_url(tmp_path), clock=clock, sealer=sealer, exclusive=True) as store:
        await store.write(lambda tx: tx.calls.insert(call))

        assert (await read_usage(store)).argument_bytes == count_argument_bytes(call.arguments or {}, call.meta)


async def test_webhooks_are_counted_unless_they_end_with_their_call(store: Store) -> None:
    shared, of_one_call = (
        make_webhook(origin=WebhookOrigin.CALL, call_id=call_id) for call_id in (None, CallId("call_1"))
    )

    async def insert(tx: Transaction) -> None:
        for webhook in (make_webhook(), shared, of_one_call, make_webhook(principal=BOB)):
            await tx.webhooks.insert(webhook)

    await store.write(insert)

    assert await store.read(lambda tx: tx.usage.count_webhooks(ALICE, limit=10)) == 2


async def test_webhooks_are_counted_up_to_a_limit(store: Store) -> None:
    async def insert(tx: Transaction) -> None:
        for webhook in (make_webhook(), make_webhook(), make_webhook()):
            await tx.webhooks.insert(webhook)

    await store.write(insert)

    assert await store.read(lambda tx: tx.usage.count_webhooks(ALICE, limit=2)) == 2


async def test_totals_are_over_all_principals(store: Store) -> None:
    async def fill(tx: Transaction) -> None:
        for call in (make_call(), make_call(principal=BOB), make_call(status=CallStatus.FAILED)):
            await tx.calls.insert(call)
        await tx.events.reserve_seqs(ALICE, 3)
        await tx.events.reserve_seqs(BOB, 4)
        await tx.deliveries.insert(
            [make_delivery(), make_delivery(principal=BOB), make_delivery(state=DeliveryState.HELD)]
        )

    await store.write(fill)

    found = await read_totals(store)
    assert (found.calls[CallStatus.WORKING], found.calls[CallStatus.FAILED], found.events) == (2, 1, 7)
    assert found.open_deliveries == {DeliveryState.HELD: 1, DeliveryState.PENDING: 2, DeliveryState.LEASED: 0}


async def test_the_first_lease_of_a_running_call_to_end_is_found(store: Store) -> None:
    async def read() -> datetime | None:
        return await store.read(lambda tx: tx.usage.first_lease_end())

    await store.write(lambda tx: tx.calls.insert(make_call()))
    assert await read() is None

    for seconds in (60, 30):
        until = START + timedelta(seconds=seconds)
        leased = make_call(phase=CallPhase.RUNNING, lease_owner="one", lease_token="held", lease_until=until)
        await store.write(lambda tx, leased=leased: tx.calls.insert(leased))
    assert await read() == START + timedelta(seconds=30)
