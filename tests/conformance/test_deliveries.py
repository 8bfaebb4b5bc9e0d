"""Deliveries: written, listed, counted and removed."""

from dataclasses import replace
from datetime import timedelta

import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import Delivery, DeliveryKind, DeliveryState
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.ids import CallId, DeliveryId, WebhookId
from ringback.domain.ports import Store
from tests.support.builders import make_attempt, make_delivery
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

LATER = START + timedelta(minutes=1, milliseconds=7)
HOOK = WebhookId("wh_1")


async def insert(store: Store, *deliveries: Delivery) -> None:
    await store.write(lambda tx: tx.deliveries.insert(deliveries))


async def get(store: Store, delivery: Delivery) -> Delivery | None:
    return await store.read(lambda tx: tx.deliveries.get(delivery.id))


async def test_deliveries_are_read_back_as_they_were_written(store: Store) -> None:
    plain = make_delivery()
    full = make_delivery(
        generation=2,
        body=b"\x00\xff" * 200_000,
        state=DeliveryState.LEASED,
        attempts=3,
        lease_token="lease_1",
        lease_until=LATER,
        last_category=AttemptCategory.TIMEOUT,
        finished_at=LATER,
    )

    await insert(store, plain, full)
    await insert(store)

    assert await get(store, plain) == plain
    (found,) = await store.read(lambda tx: tx.deliveries.list_whole([full.id], bytes_max=1))
    assert (found, found.body) == (full, full.body)
    assert await get(store, full) == full
    assert await get(store, make_delivery()) is None


@pytest.mark.requirement("R34")
async def test_deliveries_are_read_with_up_to_so_many_bytes_of_bodies_but_at_least_one(store: Store) -> None:
    deliveries = [make_delivery(body=bytes([number]) * 1_000) for number in range(4)]
    await insert(store, *deliveries)
    first, second, *_ = ids = [each.id for each in reversed(deliveries)]

    async def list_whole(bytes_max: int, *wanted: DeliveryId) -> list[tuple[DeliveryId, bytes]]:
        found = await store.read(lambda tx: tx.deliveries.list_whole(wanted, bytes_max=bytes_max))
        return [(each.id, each.body[:1]) for each in found]

    assert await list_whole(1, *ids) == [(first, b"\x03")]
    assert await list_whole(2_500, *ids) == [(first, b"\x03"), (second, b"\x02")]
    assert await list_whole(2_500, DeliveryId("dlv_none"), second) == [(second, b"\x02")]
    assert len(await list_whole(5_000, *ids)) == len(deliveries)
    assert await list_whole(5_000) == []


async def test_pages_lead_from_the_newest_delivery_to_the_oldest_without_foreign_ones(store: Store) -> None:
    deliveries = [make_delivery() for _ in range(3)]
    await insert(store, *deliveries, make_delivery(principal=BOB))
    where = DeliveryFilter()

    first = await store.read(lambda tx: tx.deliveries.list_page(ALICE, where, position=None, limit=2))
    second = await store.read(lambda tx: tx.deliveries.list_page(ALICE, where, position=first[-1].id, limit=2))

    assert [*first, *second] == list(reversed(deliveries))
    assert {each.body for each in (*first, *second)} == {b""}, "a page of them would have megabytes"


@pytest.mark.parametrize(
    "where",
    [
        DeliveryFilter(state=DeliveryState.DEAD),
        DeliveryFilter(webhook_id=HOOK),
        DeliveryFilter(call_id=CallId("call_1")),
        DeliveryFilter(state=DeliveryState.DEAD, webhook_id=HOOK),
        DeliveryFilter(state=DeliveryState.DEAD, webhook_id=HOOK, call_id=CallId("call_1")),
    ],
)
async def test_a_list_is_narrowed_by_each_filter_and_by_all_together(store: Store, where: DeliveryFilter) -> None:
    wanted = make_delivery(state=DeliveryState.DEAD, webhook_id=HOOK, call_id=CallId("call_1"), finished_at=START)
    foreign = replace(wanted, id=make_delivery().id, event_id=make_delivery().event_id, principal=BOB)
    await insert(store, wanted, foreign, make_delivery())

    assert await store.read(lambda tx: tx.deliveries.list_page(ALICE, where, position=None, limit=10)) == [wanted]


async def test_a_list_of_one_state_has_no_other_deliveries(store: Store) -> None:
    held = make_delivery(state=DeliveryState.HELD)
    await insert(store, held, make_delivery())
    where = DeliveryFilter(state=DeliveryState.HELD)

    assert await store.read(lambda tx: tx.deliveries.list_page(ALICE, where, position=None, limit=10)) == [held]


async def test_the_watermark_is_the_lowest_place_that_is_still_open(store: Store) -> None:
    ended = {"webhook_id": HOOK, "finished_at": START}
    await insert(
        store,
        make_delivery(seq=1, state=DeliveryState.DELIVERED, **ended),
        make_delivery(seq=2, state=DeliveryState.DEAD, **ended),
        make_delivery(seq=3, state=DeliveryState.CANCELLED, **ended),
        make_delivery(seq=4),
    )
    assert await store.read(lambda tx: tx.deliveries.lowest_open_seqs([HOOK])) == {}

    for seq, state in [(7, DeliveryState.PENDING), (6, DeliveryState.LEASED), (5, DeliveryState.HELD)]:
        await insert(store, make_delivery(seq=seq, state=state, webhook_id=HOOK))
        assert await store.read(lambda tx: tx.deliveries.lowest_open_seqs([HOOK])) == {HOOK: seq}


async def test_attempts_are_read_back_newest_first(store: Store) -> None:
    delivery, other = make_delivery(), make_delivery()
    attempts = [
        make_attempt(delivery, number=1),
        make_attempt(delivery, number=2, category=AttemptCategory.TLS_ERROR, status_code=None, excerpt=None),
    ]
    await insert(store, delivery, other)

    await store.write(lambda tx: tx.delivery_queue.insert_attempts([*attempts, make_attempt(other)]))

    assert await store.read(lambda tx: tx.deliveries.list_attempts(delivery.id)) == list(reversed(attempts))


async def test_ended_deliveries_are_removed_with_their_attempts_in_bounded_steps(store: Store) -> None:
    old = [make_delivery(state=DeliveryState.DELIVERED, finished_at=START) for _ in range(3)]
    kept = [make_delivery(state=DeliveryState.DEAD, finished_at=LATER), make_delivery()]
    await insert(store, *old, *kept)
    await store.write(lambda tx: tx.delivery_queue.insert_attempts([make_attempt(old[0]), make_attempt(kept[0])]))

    counts = [await store.write(lambda tx: tx.deliveries.remove(cutoff=LATER, limit=2)) for _ in range(3)]

    assert counts == [2, 1, 0]
    for delivery in old:
        assert await get(store, delivery) is None
    for delivery in kept:
        assert await get(store, delivery) == delivery
    assert await store.read(lambda tx: tx.deliveries.list_attempts(old[0].id)) == []
    assert len(await store.read(lambda tx: tx.deliveries.list_attempts(kept[0].id))) == 1


async def test_progress_deliveries_without_an_attempt_are_superseded(store: Store) -> None:
    call_id = CallId("call_1")
    progress = {"call_id": call_id, "kind": DeliveryKind.PROGRESS}
    waiting = [make_delivery(state=state, **progress) for state in (DeliveryState.PENDING, DeliveryState.HELD)]
    others = [
        make_delivery(state=DeliveryState.LEASED, lease_token="lease_1", lease_until=LATER, **progress),
        make_delivery(state=DeliveryState.DELIVERED, finished_at=START, **progress),
        make_delivery(call_id=call_id),
        make_delivery(kind=DeliveryKind.PROGRESS, call_id=CallId("call_2")),
    ]
    await insert(store, *waiting, *others)

    await store.write(lambda tx: tx.call_deliveries.cancel_superseded_progress([call_id]))

    for delivery in waiting:
        cancelled = replace(delivery, state=DeliveryState.CANCELLED, finished_at=START)
        assert await get(store, delivery) == cancelled
    for delivery in others:
        assert await get(store, delivery) == delivery


async def test_a_control_envelope_has_no_event_and_no_call(store: Store) -> None:
    gaps = [make_delivery(kind=DeliveryKind.GAP, event_id=None, call_id=None, seq=3) for _ in range(2)]
    ordered = make_delivery(order_key="session-1")

    await insert(store, *gaps, ordered)

    assert [await get(store, each) for each in [*gaps, ordered]] == [*gaps, ordered]
